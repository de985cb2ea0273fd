package policy

import (
	"strings"
	"testing"
	"time"

	"kvasir/kv"
)

func text(s string) *Request { return &Request{Now: t0, Text: []byte(s)} }

// The four branches of Ray's PrefixCacheAffinityRouter.
func TestRayPrefix(t *testing.T) {
	cfg := named("ray_prefix")
	cfg.RayPrefix.Imbalance = 10
	p := must(t, cfg, lowestIndex).(*rayPrefix)
	cands := fleet(3)
	// 3: nothing matches: the target with the least text, of those the
	// shortest queue.
	cands[0].Load.Requests = 2
	if got := run(p, text("system prompt A, question 1"), cands); got != 1 {
		t.Errorf("first of all: %d, want the shortest queue", got)
	}
	if got := run(p, text("Z"), cands); got != 2 {
		t.Errorf("no match: %d, want 2, which has no text and the shorter queue", got)
	}
	if got := run(p, text("other"), cands); got != 0 {
		t.Errorf("no match: %d, want 0, which has no text", got)
	}
	// 2: it goes where it matches, though others have less to do.
	cands[1].Load.Requests = 9
	if got := run(p, text("system prompt A, question 2"), cands); got != 1 {
		t.Errorf("match: %d, want 1", got)
	}
	// 2, several have the part that matches: the shortest queue.
	p.Placed(text("system prompt A, question 1"), cands, 0)
	if got := p.Pick(text("system prompt A, question 3"), cands); got != 0 {
		t.Errorf("two match: %d, want 0", got)
	}
	// Below 10 %: like no match at all.
	if got := p.Pick(text("s"+strings.Repeat("y", 20)), cands); got != 2 {
		t.Errorf("match of 1 in 21: %d, want 2, with the least text", got)
	}
	// 1: imbalanced by more than 10: power of two choices.
	cands[1].Load.Requests = 11
	draws := []int{0, 1} // 0 and 2
	k := 0
	p.two.intn = func(int) int { k++; return draws[(k-1)%2] }
	if got := p.Pick(text("system prompt A, question 1"), cands); got != 2 || k != 2 {
		t.Errorf("imbalanced: %d after %d draws, want 2 of (0, 2)", got, k)
	}
	cands[1].Load.Requests = 10 // not more than 10
	if got := p.Pick(text("system prompt A, question 1"), cands); got == 2 {
		t.Error("a difference of exactly 10 counts as imbalanced")
	}
	// 4: no text.
	if got := p.Pick(&Request{Text: []byte{}}, cands); got != 2 {
		t.Errorf("empty text: %d, want power of two choices", got)
	}
}

// At upstream's default nothing stops the herd; with a threshold it ends.
func TestRayPrefixHerds(t *testing.T) {
	req := text("the one system prompt of the company")
	req.Tokens = 100
	if got := burst(must(t, named("ray_prefix"), seeded(1)), req, fleet(4), 100); maxOf(got) != 100 {
		t.Errorf("default: %v", got)
	}
	cfg := named("ray_prefix")
	cfg.RayPrefix.Imbalance = 10
	if got := burst(must(t, cfg, seeded(1)), req, fleet(4), 100); maxOf(got) > 40 {
		t.Errorf("threshold 10: %v", got)
	}
}

func TestRayPrefixEviction(t *testing.T) {
	cfg := named("ray_prefix")
	cfg.RayPrefix.EvictThreshold, cfg.RayPrefix.EvictTarget = 1000, 600
	p := must(t, cfg, lowestIndex).(*rayPrefix)
	cands := fleet(1)
	put := func(c string, s float64) {
		req := text(strings.Repeat(c, 200))
		req.Now = at(s)
		run(p, req, cands)
	}
	put("a", 0) // sets the clock of the eviction
	for i, c := range []string{"b", "c", "d", "e", "f"} {
		put(c, float64(i+1))
	}
	if p.tree.size[0] != 1200 {
		t.Fatalf("evicted before the interval: %d", p.tree.size[0])
	}
	put("g", 10)
	if p.tree.size[0] != 600 {
		t.Errorf("%d characters after the eviction, want 600", p.tree.size[0])
	}
	p.seat.set(cands)
	for c, want := range map[string]int{"a": 0, "d": 0, "e": 200, "g": 200} {
		if m, _ := p.tree.match([]byte(strings.Repeat(c, 200)), &p.seat); m != want {
			t.Errorf("%s: %d characters left, want %d", c, m, want)
		}
	}
	// What was used at one moment goes as one.
	for _, c := range []string{"h", "i", "j"} {
		put(c, 15)
	}
	put("k", 15)
	p.tree.evict(0, 1300, true) // e
	if p.tree.size[0] != 1200 {
		t.Errorf("%d characters, want 1200", p.tree.size[0])
	}
	p.tree.evict(0, 700, true) // f, g and one of the last four, so all of them
	if p.tree.size[0] != 0 {
		t.Errorf("%d characters, want 0", p.tree.size[0])
	}
}

func TestRayPrefixByIndex(t *testing.T) {
	cfg := named("ray_prefix")
	p := must(t, cfg, lowestIndex)
	cands := fleet(3)
	cands[1].Overlap.Predicted = 160
	cands[2].Overlap.GPU = 96
	for i, h := range []int{50, 40, 30} {
		cands[i].Held = h
	}
	if got := p.Pick(&Request{Tokens: 1000}, cands); got != 1 {
		t.Errorf("16 %% held: %d, want 1", got)
	}
	if got := p.Pick(&Request{Tokens: 2000}, cands); got != 2 {
		t.Errorf("8 %% held: %d, want 2, which holds the least", got)
	}
}

func TestSGLangBalance(t *testing.T) {
	for _, c := range []struct {
		loads []int
		want  bool
	}{
		{[]int{0, 64}, false}, // not more than 64
		{[]int{0, 65}, true},
		{[]int{130, 195}, false}, // 65 more, but exactly 1.5 times
		{[]int{129, 194}, true},
		{[]int{1, 30}, false}, // 30 times as many, but few
		{[]int{200, 270}, false},
	} {
		cands := fleet(len(c.loads))
		for i, l := range c.loads {
			cands[i].Load.Requests = l
		}
		p := must(t, named("sglang_cache_aware"), lowestIndex).(*sglang)
		if got := p.imbalanced(cands); got != c.want {
			t.Errorf("%v: imbalanced %v, want %v", c.loads, got, c.want)
		}
	}
	// Engine figures that are stale never trip it.
	cfg := named("sglang_cache_aware")
	cfg.SGLang.OverloadUsage = .9
	p := must(t, cfg, lowestIndex).(*sglang)
	cands := fleet(2)
	cands[0].Engine = kv.Gauge{KVUsage: .99}
	if p.imbalanced(cands) {
		t.Error("a stale KV use counts")
	}
	cands[0].Engine.At = t0
	if !p.imbalanced(cands) {
		t.Error("a fresh KV use above the threshold doesn't count")
	}
}

func TestSGLang(t *testing.T) {
	p := must(t, named("sglang_cache_aware"), lowestIndex).(*sglang)
	cands := fleet(3)
	if got := run(p, text("aaaaaaaaaa"), cands); got != 0 {
		t.Errorf("first: %d", got)
	}
	// Equal loads: the one that was given fewer so far.
	if got := run(p, text("bbbbbbbbbb"), cands); got != 1 {
		t.Errorf("second: %d, want 1", got)
	}
	cands[0].Load.Requests = 20
	if got := p.Pick(text("aaaaaaazzz"), cands); got != 0 {
		t.Errorf("70 %% match: %d, want 0", got)
	}
	if got := p.Pick(text("aaazzzzzzz"), cands); got != 2 {
		t.Errorf("exactly 30 %%: %d, want the least loaded: it must be more", got)
	}
	if got := p.Pick(text("aaaazzzzzz"), cands); got != 0 {
		t.Errorf("40 %% match: %d, want 0", got)
	}
	// The switch: locality is dropped, but the tree learns.
	cands[0].Load.Requests = 100
	if got := run(p, text("aaaaaaaaaa"), cands); got != 2 {
		t.Errorf("imbalanced: %d, want 2", got)
	}
	cands[0].Load.Requests = 20
	later := text("aaaaaaaaaa")
	if got := p.Pick(later, cands[1:]); got != 1 {
		t.Errorf("after: %d, want the one that got it while imbalanced", got)
	}
}

// A miss goes by load and not by the size of the tree (sglang#14532: A: load 50,
// tree 10; B: load 0, tree 10,000; 20 unique prompts -> B).
func TestSGLangMissGoesByLoad(t *testing.T) {
	p := must(t, named("sglang_cache_aware"), lowestIndex).(*sglang)
	cands := fleet(2)
	p.Placed(text(strings.Repeat("x", 10)), cands, 0)
	p.Placed(text(strings.Repeat("y", 10000)), cands, 1)
	cands[0].Load.Requests = 50
	for i := range 20 {
		if got := run(p, text(strings.Repeat(string(rune('A'+i)), 50)), cands); got != 1 {
			t.Fatalf("miss %d went to the loaded one", i)
		}
	}
}

func TestSGLangEviction(t *testing.T) {
	cfg := named("sglang_cache_aware")
	cfg.SGLang.MaxTree, cfg.SGLang.EvictInterval = 500, time.Minute
	p := must(t, cfg, lowestIndex).(*sglang)
	for i := range 100 {
		req := text(strings.Repeat(string(rune('!'+i%90)), 40+i))
		req.Now = at(float64(i) * 7)
		run(p, req, fleet(2))
	}
	for _, tgt := range []kv.Target{0, 1} {
		// At most the limit, and what came in one interval.
		if n := p.tree.size[tgt]; n > 500+10*150 {
			t.Errorf("target %d has %d characters", tgt, n)
		}
	}
	p.tree.check(t)
}

func TestSGLangByEvents(t *testing.T) {
	cfg := named("sglang_cache_aware")
	cfg.SGLang.Match = "events"
	p := must(t, cfg, lowestIndex)
	cands := fleet(4)
	cands[1].Overlap.GPU, cands[1].Held = 16, 9
	cands[2].Overlap.GPU, cands[2].Held = 16, 8
	cands[3].Overlap.GPU, cands[3].Load.Requests = 16, 1
	req := &Request{Tokens: 10000}
	if got := p.Pick(req, cands); got != 2 {
		t.Errorf("any match counts, then load, then the smaller tree: %d, want 2", got)
	}
	cfg.SGLang.Match = "index"
	if got := must(t, cfg, lowestIndex).Pick(req, cands); got != 0 {
		t.Errorf("by the index with the threshold: %d, want the least loaded", got)
	}
}
