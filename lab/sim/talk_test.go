package sim

import (
	"slices"
	"strings"
	"testing"

	"kvasir/lab/mock"
)

// Each conversation is played once, users at a time, and its next prompt holds the
// last one and the answer, block by block.
func TestConversations(t *testing.T) {
	w, err := Generate("conversations:users=3,conversations=8,turns=4,groups=2,system=100,input=40,output=10,block=16,shuffle=0", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"reserved", "paged"} {
		cl := runArm(t, w, "marginal", 2, func(c *Config) { c.KVTokens, c.Profile, c.Engine = 4096, mock.ProfileDemo, engine })
		if n := len(cl.metrics.byID); n != 8*4 {
			t.Fatalf("%s: %d requests, want 8 conversations of 4 turns", engine, n)
		}
		by := map[int32][]*request{}
		for _, q := range cl.metrics.byID {
			by[q.conv] = append(by[q.conv], q)
		}
		type span struct{ from, to float64 }
		var spans []span
		for conv, list := range by {
			slices.SortFunc(list, func(a, b *request) int { return int(a.turn) - int(b.turn) })
			if len(list) != 4 {
				t.Fatalf("%s: conversation %d has %d turns", engine, conv, len(list))
			}
			for i, q := range list {
				if want := 100 + 40 + 50*i; q.Prompt != want || q.prompt != want/16 {
					t.Errorf("%s: turn %d has %d tokens in %d blocks, want %d in %d", engine, i, q.Prompt, q.prompt, want, want/16)
				}
				if same := conv%2 == 0; (q.Blocks[0] == by[0][0].Blocks[0]) != same {
					t.Errorf("%s: conversation %d has the system prompt of conversation 0: %v", engine, conv, !same)
				}
				if i == 0 {
					continue
				}
				if last := list[i-1]; !slices.Equal(last.blocks(), q.Blocks[:last.prompt]) {
					t.Errorf("%s: turn %d doesn't begin with the last one's prompt", engine, i)
				} else if think := q.arrival - last.done; think < .05 || think > .3 {
					t.Errorf("%s: %v s between turns", engine, think)
				}
			}
			spans = append(spans, span{list[0].arrival, list[3].done})
		}
		for _, s := range spans {
			open := 0
			for _, o := range spans {
				if o.from <= s.from && s.from < o.to {
					open++
				}
			}
			if open > 3 {
				t.Errorf("%s: %d conversations are open at %v s, want 3 at most", engine, open, s.from)
			}
		}
	}
}

// Of an answer that isn't kept nothing is in the next prompt.
func TestConversationsForget(t *testing.T) {
	for keep, want := range map[string]int{"0": 5 * 10, "1": 5*10 + 4*100} {
		w, err := Generate("conversations:users=1,conversations=1,turns=5,system=0,input=10,output=100,block=4,keep="+keep, 1)
		if err != nil {
			t.Fatal(err)
		}
		cl := runArm(t, w, "round_robin", 1, func(c *Config) { c.Engine = "paged" })
		last := cl.metrics.byID[4]
		if last.Prompt != want {
			t.Errorf("keep=%s: the last prompt has %d tokens, want %d", keep, last.Prompt, want)
		}
		if keep == "1" && last.hit < want-20 || keep == "0" && last.hit > 40 {
			t.Errorf("keep=%s: %d of %d tokens found", keep, last.hit, want)
		}
	}
	if _, err := Generate("conversations:think_min=2,think_max=1", 1); err == nil || !strings.Contains(err.Error(), "think_min") {
		t.Errorf("error %v", err)
	}
	if _, err := Generate("conversations:conversations=1000000,turns=10000,block=1", 1); err == nil || !strings.Contains(err.Error(), "1e8") {
		t.Errorf("error %v", err)
	}
}

// TestConversationsShuffled: those that begin at once come in another order with
// another seed; the later ones stay in turn.
func TestConversationsShuffled(t *testing.T) {
	order := func(spec string) (groups []int) {
		w, err := Generate("conversations:"+spec, 2)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := Generate("conversations:shuffle=0", 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range w.chats {
			groups = append(groups, slices.IndexFunc(plain.chats, func(p chat) bool { return p.turns[0].blocks[35] == c.turns[0].blocks[35] }))
		}
		return groups
	}
	a, b := order("seed=1"), order("seed=2")
	if slices.Equal(a[:7], b[:7]) {
		t.Errorf("seeds 1 and 2: the same order %v", a[:7])
	}
	for _, got := range [][]int{a, b} {
		first := slices.Sorted(slices.Values(got[:7]))
		if !slices.Equal(append(first, got[7:]...), order("shuffle=0")) {
			t.Errorf("order %v: want the first seven in any order, the rest in turn", got)
		}
	}
}
