package policy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"kvasir/kv"
)

// check panics unless the tree is what it should be.
func (t *textTree) check(tb testing.TB) {
	tb.Helper()
	sizes := map[kv.Target]int{}
	seen := map[*place]bool{}
	var walk func(n *treeNode, depth int)
	walk = func(n *treeNode, depth int) {
		for i, c := range n.children {
			if c.parent != n || len(c.text) == 0 {
				tb.Fatalf("node %q: wrong parent or empty text", c.text)
			}
			if i > 0 && n.children[i-1].text[0] >= c.text[0] {
				tb.Fatalf("children of %q out of order", n.text)
			}
			if len(c.places) == 0 {
				tb.Fatalf("node %q belongs to nobody", c.text)
			}
			for _, p := range c.places {
				if p.node != c || seen[p] {
					tb.Fatalf("place of %q is not its own", c.text)
				}
				seen[p] = true
				sizes[p.target] += len(c.text)
				if depth > 0 {
					up := n.place(p.target)
					if up == nil || up.at.Before(p.at) {
						tb.Fatalf("target %d has %q but not, or longer ago, what is above", p.target, c.text)
					}
				}
			}
			walk(c, depth+1)
		}
	}
	walk(&t.root, 0)
	for tgt := range t.size {
		if t.size[tgt] != sizes[kv.Target(tgt)] {
			tb.Fatalf("target %d: size %d, want %d", tgt, t.size[tgt], sizes[kv.Target(tgt)])
		}
		var up *place
		for p := t.first[tgt]; p != nil; p = p.next {
			if !seen[p] || p.prev != up || up != nil && up.at.Before(p.at) {
				tb.Fatalf("target %d: list out of order", tgt)
			}
			delete(seen, p)
			up = p
		}
		if t.last[tgt] != up {
			tb.Fatalf("target %d: last of the list is wrong", tgt)
		}
	}
	if len(seen) != 0 {
		tb.Fatalf("%d places in no list", len(seen))
	}
	total := 0
	for _, n := range sizes {
		total += n
	}
	if t.total != total {
		tb.Fatalf("total %d, want %d", t.total, total)
	}
}

// The tree against a plain set of prefixes per target.
func TestTextTreeTwin(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var tree textTree
			held := [4]map[string]bool{{}, {}, {}, {}}
			random := func() []byte {
				b := make([]byte, r.IntN(30))
				for i := range b {
					b[i] = 'a' + byte(r.IntN(2)*r.IntN(2))
				}
				return b
			}
			for k := range 300 {
				text, tgt := random(), kv.Target(r.IntN(4))
				switch r.IntN(12) {
				case 0:
					most := r.IntN(200)
					tree.evict(tgt, most, r.IntN(2) == 0)
					if tree.size[tgt] > most {
						t.Fatalf("%d bytes left, want at most %d", tree.size[tgt], most)
					}
					// What is left: prefixes of what was.
					now := map[string]bool{}
					var walk func(n *treeNode, above string)
					walk = func(n *treeNode, above string) {
						for _, c := range n.children {
							if c.place(tgt) == nil {
								continue
							}
							for i := range c.text {
								now[above+string(c.text[:i+1])] = true
							}
							walk(c, above+string(c.text))
						}
					}
					walk(&tree.root, "")
					for s := range now {
						if !held[tgt][s] {
							t.Fatalf("%q came from nowhere", s)
						}
					}
					held[tgt] = now
				case 1:
					tree.forget(tgt)
					held[tgt] = map[string]bool{}
				default:
					tree.insert(text, tgt, at(float64(k)))
					for i := range text {
						held[tgt][string(text[:i+1])] = true
					}
				}
				tree.check(t)
				// Match among a random set of candidates.
				var cands []Candidate
				for c := range kv.Target(4) {
					if r.IntN(3) > 0 {
						cands = append(cands, Candidate{Target: c})
					}
				}
				var s seats
				s.set(cands)
				probe := random()
				matched, node := tree.match(probe, &s)
				want := 0
				for i := range probe {
					for _, c := range cands {
						if held[c.Target][string(probe[:i+1])] {
							want = i + 1
						}
					}
				}
				if matched != want || (node == nil) != (want == 0) {
					t.Fatalf("matched %d of %q, want %d", matched, probe, want)
				}
				if node != nil {
					for _, c := range cands {
						// Whoever has the last node has all that matched.
						if node.place(c.Target) != nil && !held[c.Target][string(probe[:matched])] {
							t.Fatalf("target %d doesn't have %q", c.Target, probe[:matched])
						}
					}
				}
			}
			for tgt := range kv.Target(4) {
				tree.forget(tgt)
			}
			if tree.check(t); len(tree.root.children) != 0 {
				t.Error("nodes without owners are left")
			}
		})
	}
}

// Split nodes join again when the branch is gone (sglang: trees of single
// characters that never shrink).
func TestTextTreeMerges(t *testing.T) {
	var tree textTree
	long := bytes.Repeat([]byte("x"), 1000)
	tree.insert(long, 0, at(1000))
	for i := range 1000 {
		tree.insert(append(bytes.Clone(long[:i]), 'y'), 1, at(float64(i)))
	}
	tree.forget(1)
	tree.check(t)
	nodes := 0
	for n := &tree.root; len(n.children) > 0; n = n.children[0] {
		nodes++
	}
	if nodes != 1 {
		t.Errorf("%d nodes for one text, want 1", nodes)
	}
}

func TestTextTreeEvictsOldestLeafFirst(t *testing.T) {
	var tree textTree
	tree.insert([]byte("system one"), 0, at(1))
	tree.insert([]byte("system two"), 0, at(2))
	tree.insert([]byte("system one"), 0, at(3))
	tree.evict(0, 12, false) // "system " + "one" + "two" is 13
	var s seats
	s.set([]Candidate{{Target: 0}})
	for _, c := range []struct {
		text string
		want int
	}{{"system one", 10}, {"system two", 7}} {
		if m, _ := tree.match([]byte(c.text), &s); m != c.want {
			t.Errorf("%q matches %d, want %d", c.text, m, c.want)
		}
	}
	tree.check(t)
}

// A tree stays within its limit whatever those of the policy are: here none at
// all, as is Ray's default, and prompts that share nothing.
func TestTextTreeIsBounded(t *testing.T) {
	cfg := named("ray_prefix")
	cfg.RayPrefix.Evict = false
	p := must(t, cfg, seeded(1)).(*rayPrefix)
	p.tree.limit = 100000
	cands := fleet(20)
	r := rand.New(rand.NewPCG(8, 8))
	for k := range 3000 {
		text := make([]byte, 1000)
		for i := range text {
			text[i] = byte(r.IntN(256))
		}
		p.Placed(&Request{Now: at(float64(k)), Text: text}, cands, k%20)
		if p.tree.total > p.tree.limit {
			t.Fatalf("%d bytes after %d prompts", p.tree.total, k)
		}
	}
	p.tree.check(t)
	if p.tree.total < 50000 {
		t.Errorf("only %d bytes are left", p.tree.total)
	}
}
