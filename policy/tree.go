package policy

import (
	"bytes"
	"slices"
	"time"

	"kvasir/kv"
)

// A textTree is a radix tree of the texts that were sent to targets: what routers
// without cache events have instead of an index. A node knows the targets that
// were sent all text down to its end, and when last.
//
// Each target has a list of its places in the tree in order of use. A target
// that has a node has all nodes above it, used no earlier, so the end of the list
// is always a leaf as far as that target goes, and evicting from there never
// leaves a hole. Nodes without targets are removed and nodes with one child and
// the same targets merged with it, so memory follows the text that is held.
type textTree struct {
	root  treeNode
	size  [kv.MaxTargets]int // bytes of text by target
	total int                // sum of size: more than the bytes in memory, as targets share nodes
	limit int                // on total
	first [kv.MaxTargets]*place
	last  [kv.MaxTargets]*place
	spare *place // linked by next
	path  []*treeNode
}

type treeNode struct {
	text     []byte
	parent   *treeNode
	children []*treeNode // by first byte
	places   []*place
}

// A place is one target's hold of one node.
type place struct {
	target     kv.Target
	node       *treeNode
	at         time.Time
	prev, next *place // towards more and less recently used
}

func (n *treeNode) child(b byte) (int, bool) {
	return slices.BinarySearchFunc(n.children, b, func(c *treeNode, b byte) int { return int(c.text[0]) - int(b) })
}

func (n *treeNode) place(t kv.Target) *place {
	for _, p := range n.places {
		if p.target == t {
			return p
		}
	}
	return nil
}

// held reports whether any candidate has n.
func (n *treeNode) held(s *seats) bool {
	for _, p := range n.places {
		if s.of(p.target) >= 0 {
			return true
		}
	}
	return false
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	if bytes.Equal(a[:n], b[:n]) {
		return n
	}
	i := 0
	for ; i+16 <= n && bytes.Equal(a[i:i+16], b[i:i+16]); i += 16 {
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// match goes down the tree as far as text leads and a candidate has been. It
// returns the number of bytes matched and the last node reached, nil if none.
func (t *textTree) match(text []byte, s *seats) (matched int, at *treeNode) {
	n := &t.root
	for matched < len(text) {
		i, ok := n.child(text[matched])
		if !ok || !n.children[i].held(s) {
			break
		}
		n = n.children[i]
		at = n
		k := commonPrefix(n.text, text[matched:])
		matched += k
		if k < len(n.text) {
			break
		}
	}
	return matched, at
}

// insert notes that text was sent to target.
func (t *textTree) insert(text []byte, target kv.Target, now time.Time) {
	n := &t.root
	t.path = t.path[:0]
	for len(text) > 0 {
		i, ok := n.child(text[0])
		if !ok {
			c := &treeNode{text: bytes.Clone(text), parent: n}
			n.children = slices.Insert(n.children, i, c)
			t.path = append(t.path, c)
			break
		}
		c := n.children[i]
		k := commonPrefix(c.text, text)
		if k < len(c.text) {
			c = t.split(n, i, k)
		}
		t.path = append(t.path, c)
		n, text = c, text[k:]
	}
	// From the leaf up, so that what is above was used after what is below.
	for i := len(t.path) - 1; i >= 0; i-- {
		t.use(t.path[i], target, now)
	}
}

// split cuts child i of n behind k bytes and returns the upper part.
func (t *textTree) split(n *treeNode, i, k int) *treeNode {
	low := n.children[i]
	up := &treeNode{text: low.text[:k:k], parent: n, children: []*treeNode{low}}
	n.children[i] = up
	low.parent = up
	low.text = low.text[k:]
	for _, p := range low.places {
		q := t.newPlace(p.target, up, p.at)
		t.linkBefore(q, p)
		up.places = append(up.places, q)
	}
	return up
}

func (t *textTree) newPlace(target kv.Target, n *treeNode, at time.Time) *place {
	p := t.spare
	if p == nil {
		p = new(place)
	} else {
		t.spare = p.next
	}
	*p = place{target: target, node: n, at: at}
	return p
}

func (t *textTree) use(n *treeNode, target kv.Target, now time.Time) {
	p := n.place(target)
	if p == nil {
		p = t.newPlace(target, n, now)
		n.places = append(n.places, p)
		t.size[target] += len(n.text)
		t.total += len(n.text)
	} else {
		t.unlink(p)
	}
	p.at = now
	t.linkBefore(p, t.first[target])
}

// linkBefore makes p a little more recently used than q, or the only one if q is
// nil.
func (t *textTree) linkBefore(p, q *place) {
	if q == nil {
		t.first[p.target], t.last[p.target] = p, p
		return
	}
	p.prev, p.next = q.prev, q
	if q.prev == nil {
		t.first[p.target] = p
	} else {
		q.prev.next = p
	}
	q.prev = p
}

func (t *textTree) unlink(p *place) {
	if p.prev == nil {
		t.first[p.target] = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		t.last[p.target] = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
}

// evict removes a target's least recently used text until no more than most
// bytes are left. With whole it goes on through all that was used at the same
// time as the last removed.
func (t *textTree) evict(target kv.Target, most int, whole bool) {
	var at time.Time
	for p := t.last[target]; p != nil; p = t.last[target] {
		if t.size[target] <= most && !(whole && !at.IsZero() && p.at.Equal(at)) {
			return
		}
		at = p.at
		t.drop(p)
	}
}

// drop removes a place, its node if that was the last one, and the seam that it
// may leave.
func (t *textTree) drop(p *place) {
	n := p.node
	t.unlink(p)
	t.size[p.target] -= len(n.text)
	t.total -= len(n.text)
	n.places = slices.DeleteFunc(n.places, func(q *place) bool { return q == p })
	*p = place{next: t.spare}
	t.spare = p
	if len(n.places) > 0 {
		t.merge(n)
		t.merge(n.parent) // which may now differ from n, or n alone be left
		return
	}
	up := n.parent // what nobody has, nobody has anything below of
	if i, ok := up.child(n.text[0]); ok {
		up.children = slices.Delete(up.children, i, i+1)
	}
	t.merge(up)
}

// merge joins n with its only child if the same targets have both.
func (t *textTree) merge(n *treeNode) {
	if n == nil || n.parent == nil || len(n.children) != 1 || len(n.children[0].places) != len(n.places) {
		return
	}
	low := n.children[0]
	up := n.parent
	i, _ := up.child(n.text[0])
	for _, p := range n.places {
		t.unlink(p)
		*p = place{next: t.spare}
		t.spare = p
	}
	low.text = slices.Concat(n.text, low.text)
	low.parent = up
	up.children[i] = low
}

// maxTreeTotal bounds a tree whatever its policy says: upstream's limits are for
// each target (64 MB), at times off, and enforced only now and then.
const maxTreeTotal = 1 << 30

func newTextTree() *textTree { return &textTree{limit: maxTreeTotal} }

// full reports whether the tree must be trimmed now.
func (t *textTree) full() bool { return t.total > t.limit }

// trim evicts from every target with more than over bytes until most are left,
// and whatever it takes to stay within the limit.
func (t *textTree) trim(over, most int, whole bool) {
	if t.full() {
		holders := 0
		for i := range t.size {
			if t.size[i] > 0 {
				holders++
			}
		}
		fair := t.limit / 10 * 9 / holders
		over, most = min(over, fair), min(most, fair)
	}
	for i := range t.size {
		if t.size[i] > over {
			t.evict(kv.Target(i), most, whole)
		}
	}
}

// forget removes all of a target.
func (t *textTree) forget(target kv.Target) { t.evict(target, -1, false) }
