package jinja

// A funcScope is what runs with a frame of its own: the template itself or one macro. A scope is a
// region of it in which {% set %} is local: the body of a loop, of {% with %}, of a block.
//
// Jinja2 copies an outer variable into the scope that sets it. Here each scope has slots of its own,
// cleared on entry, and a name is looked up from its scope outwards until a slot is set, then in the
// render context: the same thing without the copies.
type funcScope struct {
	parent   *funcScope
	slots    int
	captured bool // a macro inside may outlive a call, so its frames are not reused
}

type scope struct {
	fn     *funcScope
	parent *scope
	names  map[string]int
	lo, hi int // slots of this scope and those inside it
}

type slotRef struct{ up, slot int }

func newScope(fn *funcScope, parent *scope) *scope {
	return &scope{fn: fn, parent: parent, lo: fn.slots}
}

// declare gives the slot of a name that the scope sets.
func (sc *scope) declare(name string) int {
	if i, ok := sc.names[name]; ok {
		return i
	}
	if sc.names == nil {
		sc.names = map[string]int{}
	}
	i := sc.fn.slots
	sc.fn.slots++
	sc.names[name] = i
	return i
}

// lookup lists the slots where a name used in sc may be, the nearest first.
func (sc *scope) lookup(name string) (refs []slotRef) {
	up, fn := 0, sc.fn
	for s := sc; s != nil; s = s.parent {
		if s.fn != fn {
			up, fn = up+1, s.fn
		}
		if i, ok := s.names[name]; ok {
			refs = append(refs, slotRef{up, i})
		}
	}
	return refs
}

// clear forgets the variables of sc in a frame.
func (sc *scope) clear(f *frame) {
	clear(f.slots[sc.lo:sc.hi])
}

type frame struct {
	slots  []Value
	parent *frame
}
