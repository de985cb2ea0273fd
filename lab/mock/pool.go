package mock

import "kvasir/kv"

// A Pool is a set of physical blocks. Blocks without references form one queue:
// the head is taken first, freed blocks with content go to the tail. Content
// stays findable until the block is taken.
type Pool struct {
	blocks []block
	first  map[kv.Hash]int32 // hash -> one physical block that holds it; the others hang on it
	head   int32             // queue of blocks without references, none if empty
	tail   int32
	free   int // length of the queue
	held   int // blocks with content
}

type block struct {
	hash kv.Hash
	next int32 // in the queue
	prev int32
	same int32 // next physical block with this hash
	back int32 // previous one; none at the first
	refs int32
	full bool // has findable content
}

const none = int32(-1)

// NewPool returns a pool of n empty blocks.
func NewPool(n int) *Pool {
	p := &Pool{blocks: make([]block, n), first: make(map[kv.Hash]int32, n), head: none, tail: none}
	for i := range p.blocks {
		p.blocks[i].same, p.blocks[i].back = none, none
		p.pushTail(int32(i))
	}
	return p
}

func (p *Pool) used() int { return len(p.blocks) - p.free }

func (p *Pool) pushTail(i int32) {
	b := &p.blocks[i]
	b.prev, b.next = p.tail, none
	if p.tail == none {
		p.head = i
	} else {
		p.blocks[p.tail].next = i
	}
	p.tail = i
	p.free++
}

func (p *Pool) pushHead(i int32) {
	b := &p.blocks[i]
	b.prev, b.next = none, p.head
	if p.head == none {
		p.tail = i
	} else {
		p.blocks[p.head].prev = i
	}
	p.head = i
	p.free++
}

func (p *Pool) unlink(i int32) {
	b := &p.blocks[i]
	if b.prev == none {
		p.head = b.next
	} else {
		p.blocks[b.prev].next = b.next
	}
	if b.next == none {
		p.tail = b.prev
	} else {
		p.blocks[b.next].prev = b.prev
	}
	p.free--
}

// find returns a physical block that holds h.
func (p *Pool) find(h kv.Hash) (int32, bool) {
	i, ok := p.first[h]
	return i, ok
}

// touch adds a reference to block i.
func (p *Pool) touch(i int32) {
	b := &p.blocks[i]
	if b.refs == 0 {
		p.unlink(i)
	}
	b.refs++
}

// take removes the block at the head of the queue, which must not be empty, and
// gives it one reference. If it had content, evicted is true and hash says which.
func (p *Pool) take() (i int32, hash kv.Hash, evicted bool) {
	i = p.head
	p.unlink(i)
	b := &p.blocks[i]
	b.refs = 1
	if b.full {
		hash, evicted = b.hash, true
		p.drop(i)
	}
	return i, hash, evicted
}

// drop forgets the content of block i.
func (p *Pool) drop(i int32) {
	b := &p.blocks[i]
	if b.same != none {
		p.blocks[b.same].back = b.back
	}
	switch {
	case b.back != none:
		p.blocks[b.back].same = b.same
	case b.same != none:
		p.first[b.hash] = b.same
	default:
		delete(p.first, b.hash)
	}
	b.same, b.back, b.full = none, none, false
	p.held--
}

// name says that block i holds h from now on.
func (p *Pool) name(i int32, h kv.Hash) {
	b := &p.blocks[i]
	b.hash, b.full, b.same, b.back = h, true, none, none
	p.held++
	at, ok := p.first[h]
	if !ok {
		p.first[h] = i
		return
	}
	b.same, b.back = p.blocks[at].same, at
	if b.same != none {
		p.blocks[b.same].back = i
	}
	p.blocks[at].same = i
}

// release takes one reference from block i. Without a last one it joins the
// queue: at the tail; at the head if it has no content and blankFirst is set.
func (p *Pool) release(i int32, blankFirst bool) {
	b := &p.blocks[i]
	b.refs--
	if b.refs > 0 {
		return
	}
	if blankFirst && !b.full {
		p.pushHead(i)
		return
	}
	p.pushTail(i)
}

func (p *Pool) match(blocks []kv.Hash) int {
	for n, h := range blocks {
		if _, ok := p.first[h]; !ok {
			return n
		}
	}
	return len(blocks)
}

func (p *Pool) copies(h kv.Hash) int {
	n := 0
	at, ok := p.first[h]
	for ok && at != none {
		n++
		at = p.blocks[at].same
	}
	return n
}

func (p *Pool) truth(dst []kv.Hash) []kv.Hash {
	for i := range p.blocks {
		b := &p.blocks[i]
		if b.full && p.first[b.hash] == int32(i) {
			dst = append(dst, b.hash)
		}
	}
	return dst
}

// forget drops the content of all blocks; none may have references.
func (p *Pool) forget() {
	clear(p.first)
	for i := range p.blocks {
		b := &p.blocks[i]
		b.full, b.same, b.back = false, none, none
	}
	p.held = 0
}
