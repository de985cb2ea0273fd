package wire

import (
	"bytes"
	"encoding/binary"

	"kvasir/kv"
)

// A repeat is where the latest event, a removal of one block, lies in the
// payload. Under pressure an engine sends one such event for each evicted block,
// and they differ in the hash only: comparing bytes is several times cheaper than
// decoding them again.
type repeat struct {
	start, hash, hashEnd, end int // end 0: the latest event is none
}

// run decodes up to n events at r that are the latest one with another hash,
// adds their hashes to it, and returns how many there were.
func (t *repeat) run(r *reader, s *scratch, n int) int {
	size, hash, hashEnd := t.end-t.start, t.hash-t.start, t.hashEnd-t.start
	old := r.b[t.start:t.end]
	head, tail := old[:hash+1], old[hashEnd:]
	k := 0
	for ; k < n && len(r.b)-r.i >= size; k++ {
		next := r.b[r.i : r.i+size]
		if !bytes.Equal(next[:hash+1], head) || !bytes.Equal(next[hashEnd:], tail) {
			break
		}
		h := kv.Handle(0)
		if p := next[hash:hashEnd]; len(p) == 9 { // a 64-bit int: its type byte is the old one's
			h = kv.Handle(binary.BigEndian.Uint64(p[1:]))
		} else {
			one, ok := reader{b: next[:hashEnd], i: hash}, false
			if h, ok = readHandle(&one); !ok || one.i != hashEnd {
				break
			}
		}
		s.handles = append(s.handles, h)
		r.i += size
	}
	if k > 0 {
		p := &s.events[len(s.events)-1]
		p.Handles = s.handles[len(s.handles)-len(p.Handles)-k:]
	}
	return k
}
