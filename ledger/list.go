package ledger

// Entries are in up to three doubly linked lists: all of a target, in order of
// admission; those that may expire, in order of their last sign of life; and the
// silent ones of a target that are taken to be in prefill, in order of admission.
const (
	byTarget = iota
	byIdle
	bySilent

	numLists
)

const none = ^uint32(0)

type link struct{ prev, next uint32 }

type list struct{ head, tail uint32 }

// link appends entry i.
func (l *Ledger) link(to *list, i uint32, by int) {
	l.entries[i].links[by] = link{to.tail, none}
	if to.tail == none {
		to.head = i
	} else {
		l.entries[to.tail].links[by].next = i
	}
	to.tail = i
}

func (l *Ledger) unlink(from *list, i uint32, by int) {
	k := l.entries[i].links[by]
	if k.prev == none {
		from.head = k.next
	} else {
		l.entries[k.prev].links[by].next = k.next
	}
	if k.next == none {
		from.tail = k.prev
	} else {
		l.entries[k.next].links[by].prev = k.prev
	}
}
