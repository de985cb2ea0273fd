package wire

import "bytes"

// A repeat is where the latest event, a removal of one block, lies in the
// payload. Under pressure an engine sends one such event for each evicted block,
// and they differ in the hash only: comparing bytes is several times cheaper than
// decoding them again.
type repeat struct {
	start, hash, hashEnd, end int // end 0: the latest event is none
}

// next decodes the event at r if it is the latest one with another hash, and
// adds the hash to it.
func (t *repeat) next(r *reader, s *scratch) bool {
	size := t.end - t.start
	if len(r.b)-r.i < size {
		return false
	}
	old, new := r.b[t.start:t.end], r.b[r.i:r.i+size]
	hash, hashEnd := t.hash-t.start, t.hashEnd-t.start
	if !bytes.Equal(old[:hash+1], new[:hash+1]) || !bytes.Equal(old[hashEnd:], new[hashEnd:]) {
		return false
	}
	one := reader{b: new[:hashEnd], i: hash}
	h, ok := readHandle(&one)
	if !ok || one.i != hashEnd {
		return false
	}
	s.handles = append(s.handles, h)
	p := &s.events[len(s.events)-1]
	p.Handles = s.handles[len(s.handles)-len(p.Handles)-1:]
	r.i += size
	return true
}
