package ledger

import (
	"fmt"

	"kvasir/kv"
)

// check panics if the ledger contradicts itself: a sum of entries that isn't the
// account's, a negative number, a block without owner. It is slow, and called
// only in builds with the tag invariants and by tests.
func (l *Ledger) check() {
	live := 0
	for t, acc := range l.targets {
		if acc == nil {
			continue
		}
		var s account
		refs := map[kv.Hash]uint32{}
		only := map[uint32]int{}
		for i := acc.open.head; i != none; i = l.entries[i].links[byTarget].next {
			e := l.entries[i]
			if !e.live || int(e.target) != t {
				panic(fmt.Sprintf("ledger: target %d lists entry %d, which is free or of target %d", t, i, e.target))
			}
			live++
			s.requests++
			s.prompt += e.prompt
			s.output += e.output
			s.faded += e.faded * int64(e.only)
			if e.prefilled {
				s.decode += e.prompt
			} else {
				s.prefilling++
				s.prefill += e.uncached
				s.booked += e.booked
			}
			s.blocks += e.grown
			only[i] += e.grown
			for c := e.hashes; c != nil; c = c.next {
				for _, h := range c.hashes[:c.n] {
					refs[h]++
				}
			}
			if e.private {
				s.blocks += e.only - e.grown
				only[i] = e.only
			}
		}
		s.blocks += len(refs)
		for i := acc.open.head; i != none; i = l.entries[i].links[byTarget].next {
			e := l.entries[i]
			for c := e.hashes; c != nil; c = c.next {
				for _, h := range c.hashes[:c.n] {
					if refs[h] == 1 {
						only[i]++
					}
				}
			}
			if only[i] != e.only {
				panic(fmt.Sprintf("ledger: entry %d has %d blocks alone, the ledger says %d", i, only[i], e.only))
			}
		}
		for h, n := range refs {
			if i, ok := acc.live.find(h); !ok || acc.live.slots[i].refs != n {
				panic(fmt.Sprintf("ledger: block %x of target %d is in %d requests, the table differs", h, t, n))
			}
		}
		got := [...]int{acc.requests, acc.prefilling, acc.prompt, acc.output, acc.decode, acc.prefill, acc.blocks, int(acc.faded), int(acc.booked), acc.live.n}
		want := [...]int{s.requests, s.prefilling, s.prompt, s.output, s.decode, s.prefill, s.blocks, int(s.faded), int(s.booked), len(refs)}
		silent := 0
		for i := acc.silent.head; i != none; i = l.entries[i].links[bySilent].next {
			if e := l.entries[i]; !e.live || !e.silent || e.prefilled {
				panic(fmt.Sprintf("ledger: target %d lists entry %d as silent and in prefill", t, i))
			}
			silent++
		}
		for i := acc.open.head; i != none; i = l.entries[i].links[byTarget].next {
			if e := l.entries[i]; e.silent && !e.prefilled {
				silent--
			}
		}
		if silent != 0 {
			panic(fmt.Sprintf("ledger: target %d: list of silent entries is off by %d", t, silent))
		}
		if got != want {
			panic(fmt.Sprintf("ledger: target %d: account %v, sum of entries %v", t, got, want))
		}
		for _, v := range got {
			if v < 0 {
				panic(fmt.Sprintf("ledger: target %d: negative: %v", t, got))
			}
		}
	}
	if live != l.live || live+len(l.free) != len(l.entries) {
		panic(fmt.Sprintf("ledger: %d live and %d free of %d entries, counted %d", l.live, len(l.free), len(l.entries), live))
	}
}
