package router

import (
	"sync"

	"kvasir/kv"
)

// fullBlocks tells the size of the full blocks of an engine's dense groups from the
// rests of prompts that are stored beside them.
//
// A hybrid model whose blocks are hashed in smaller units stores, behind the full
// blocks, the rest of a prompt as one short block. After 5 blocks of 64 tokens comes
// one of 16, and the next prompt has blocks of 64 again: its blocks have 64 tokens
// all the time. The short one is left out, as no longer prompt goes on from it. Its
// removal then names nothing that is known, which changes nothing.
type fullBlocks struct {
	mu      sync.Mutex
	targets map[kv.Target]*denseGroups
}

type denseGroups struct {
	main   uint16 // the first that stored something: its size is the target's
	groups map[uint16]*fullBlock
}

type fullBlock struct {
	size int32
	rest kv.Handle // the latest short block
	has  bool      // rest is one
}

// take looks at one event. rest says that it stores the rest of a prompt, which must
// be left out. size is that of the group's full blocks, 0 if the event says nothing
// about it; main says that it is the target's.
//
// One block shorter than the known ones is a rest. Two in one event, or one that goes
// on from a rest, are full blocks of an engine that was started anew with another size.
func (f *fullBlocks) take(ev *kv.Event) (size int32, main, rest bool) {
	if ev.Kind != kv.Stored || ev.Attention != kv.Dense || ev.Tier != kv.GPU || ev.BlockSize <= 0 || len(ev.Handles) == 0 {
		return 0, false, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.targets[ev.Target]
	if t == nil {
		t = &denseGroups{main: ev.Group, groups: map[uint16]*fullBlock{}}
		if f.targets == nil {
			f.targets = map[kv.Target]*denseGroups{}
		}
		f.targets[ev.Target] = t
	}
	g := t.groups[ev.Group]
	if g == nil {
		g = &fullBlock{}
		t.groups[ev.Group] = g
	}
	goesOn := g.has && !ev.Root && ev.Parent == g.rest
	if ev.BlockSize < g.size && len(ev.Handles) == 1 && !goesOn {
		g.rest, g.has = ev.Handles[0], true
		return 0, false, true
	}
	if g.size != ev.BlockSize {
		g.size, g.has = ev.BlockSize, false
	}
	return g.size, ev.Group == t.main, false
}
