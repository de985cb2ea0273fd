package sim

import "kvasir/kv"

// content is the start of every block's tokens but for the first two, which hold
// its id: as good as any other content, and cheap to write.
var content [4096]uint32

func init() {
	for i := range content {
		content[i] = uint32(h64(uint64(i)))
	}
}

// appendContent appends the tokens of the block that the trace calls id.
func appendContent(dst []uint32, id kv.Hash, size int) []uint32 {
	at := len(dst)
	for n := size; n > 0; n -= len(content) {
		dst = append(dst, content[:min(n, len(content))]...)
	}
	dst[at] = uint32(id)
	if size > 1 {
		dst[at+1] = uint32(id >> 32)
	}
	return dst
}

// names remembers the chained hash of each of the trace's block ids, so that a
// prompt isn't hashed token by token for every decision of every run. Ids are
// chained already: each has one parent and so one hash.
type names struct {
	size   int
	known  map[kv.Hash]kv.Hash
	tokens []uint32
	root   kv.Hash
	parent *names // read-only, shared by runs
}

func newNames(size int, parent *names) *names {
	return &names{size: size, known: map[kv.Hash]kv.Hash{}, root: seed.Root(kv.Key{}, size), parent: parent}
}

// chain appends the hashes of a prompt's blocks to dst.
func (n *names) chain(dst []kv.Hash, blocks []kv.Hash) []kv.Hash {
	prev := n.root
	for _, id := range blocks {
		h, ok := kv.Hash(0), false
		if n.parent != nil {
			h, ok = n.parent.known[id]
		}
		if !ok {
			h, ok = n.known[id]
		}
		if ok {
			dst = append(dst, h)
		} else {
			n.tokens = appendContent(n.tokens[:0], id, n.size)
			dst = seed.Extend(dst, prev, n.tokens, n.size, nil)
			h = dst[len(dst)-1]
			n.known[id] = h
		}
		prev = h
	}
	return dst
}
