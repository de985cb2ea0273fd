package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"kvasir/kv"
)

// A shape is an event that was decoded before, as literal bytes with holes. One
// engine's events differ in their lists and little else: comparing a few runs of
// bytes is several times cheaper than looking up a dozen names, and says as much.
// A shape belongs to no dialect and to no publisher; whatever it doesn't fit is
// decoded in full. It lies in the scratch memory, so idle connections have none.
type shape struct {
	tag     tag
	base    fields // the values of what is literal
	count   int    // elements: pairs of a map, slots of an array
	elems   [maxElems]element
	varying uint32 // bits of the elements whose values are holes
	steps   []hole
	lit     []byte // the event's bytes without its holes
	last    int    // lit[last:] comes after the last hole
}

const maxElems = 24

// An element is a pair of a map or a slot of an array: where it and its value lie.
type element struct {
	id              field
	from, value, to int // in the payload while it is traced, then in lit
}

// A hole is read after the literal bytes lit[from:to].
type hole struct {
	id       field
	from, to int
}

// A trace notes the elements of the event that is decoded.
type trace struct {
	n     int // more than maxElems: no shape
	elems [maxElems]element
}

func (t *trace) add(id field, from, value, to int) {
	if t.n < maxElems {
		t.elems[t.n] = element{id, from, value, to}
	}
	t.n++
}

// holes are the fields that differ from event to event. Others become one when
// they are seen to.
const holes = 1<<fHashes | 1<<fParent | 1<<fTokens | 1<<fExtraKeys | 1<<fMMKeys | 1<<fCopies

const (
	maxLiteral = 512 // bytes of a shape
	maxValue   = 64  // of these that are one value
)

// fits says that the event at r may have this shape.
func (sh *shape) fits(r *reader) bool { return r.i < len(r.b) && r.b[r.i] == sh.lit[0] }

// match decodes the event at r if it has this shape. If not, r has not moved.
func (sh *shape) match(d *Decoder, r *reader, f *fields, m marks) bool {
	start := r.i
	*f = sh.base
	f.marks = m
	for i := range sh.steps {
		h := &sh.steps[i]
		if !r.literal(sh.lit[h.from:h.to]) || !d.hole(r, f, h.id) {
			r.i, r.short = start, false
			return false
		}
	}
	if !r.literal(sh.lit[sh.last:]) {
		r.i = start
		return false
	}
	return true
}

// hole reads a field. The usual forms of what every event has are quick.
func (d *Decoder) hole(r *reader, f *fields, id field) bool {
	b := r.b[r.i:]
	switch {
	case id == fParent && len(b) >= 9 && is64(b[0]):
		f.hasParent, f.parent = true, kv.Handle(binary.BigEndian.Uint64(b[1:]))
		r.i += 9
		return true
	case id == fHashes && len(b) >= 10 && b[0] == 0x91 && is64(b[1]): // one hash
		d.s.handles = append(d.s.handles, kv.Handle(binary.BigEndian.Uint64(b[2:])))
		f.hashAt, f.hashEnd = r.i+1, r.i+10
		r.i += 10
		return true
	}
	return d.field(r, f, id) && f.bad == fOther
}

// literal consumes p if it comes next.
func (r *reader) literal(p []byte) bool {
	n := len(p)
	if len(r.b)-r.i < n || string(r.b[r.i:r.i+n]) != string(p) {
		return false
	}
	r.i += n
	return true
}

// shapes are the latest ones, tried in order.
type shapes struct {
	list    []*shape
	next    int // to be replaced
	learned int
}

const (
	maxShapes = 8
	// eagerly is how often shapes are learnt without hesitation; after that an
	// event in sixteen that fits none, because they may differ in ways that shapes
	// can't express.
	eagerly = 64
)

// learn makes a shape of the event in b[start:end], which was decoded to f.
func (s *shapes) learn(t *trace, b []byte, start, end int, f *fields) {
	s.learned++
	if s.learned > eagerly && s.learned%16 != 0 {
		return
	}
	if t.n == 0 || t.n > maxElems {
		return
	}
	var seen uint32
	varying, literal := uint32(0), end-start
	for i, e := range t.elems[:t.n] {
		if e.id == fMetadata || e.id != fOther && seen>>e.id&1 == 1 {
			return // more than one field in an element, or the same twice
		}
		seen |= 1 << e.id
		if holes>>e.id&1 == 1 || e.to-e.value > maxValue && e.id != fType {
			varying |= 1 << i
			literal -= e.to - e.value
		}
	}
	if literal > maxLiteral {
		return
	}
	var sh *shape
	for _, old := range s.list {
		if differ, ok := old.differs(t, b, f.tag); ok {
			sh, varying = old, old.varying|varying|differ
			break
		}
	}
	switch {
	case sh != nil:
	case len(s.list) < maxShapes:
		sh = new(shape)
		s.list = append(s.list, sh)
	default:
		sh = s.list[s.next]
		s.next = (s.next + 1) % maxShapes
	}
	sh.set(t, b, start, end, f, varying)
}

// differs says which literal elements of sh have another value in the traced
// event. false: the event has other elements.
func (sh *shape) differs(t *trace, b []byte, g tag) (differ uint32, ok bool) {
	if sh.tag != g || sh.count != t.n {
		return 0, false
	}
	for i := range t.n {
		old, e := &sh.elems[i], &t.elems[i]
		switch {
		case old.id != e.id, !bytes.Equal(sh.lit[old.from:old.value], b[e.from:e.value]):
			return 0, false
		case sh.varying>>i&1 == 1, bytes.Equal(sh.lit[old.value:old.to], b[e.value:e.to]):
		case e.id == fType: // decides what everything else means
			return 0, false
		default:
			differ |= 1 << i
		}
	}
	return differ, bits.OnesCount32(differ) < t.n
}

// set makes sh the shape of the event in b[start:end].
func (sh *shape) set(t *trace, b []byte, start, end int, f *fields, varying uint32) {
	sh.tag, sh.base, sh.count, sh.varying = f.tag, *f, t.n, varying
	sh.steps, sh.lit = sh.steps[:0], sh.lit[:0]
	from, at := 0, start // of the literal bytes before the next hole, in lit and in b
	for i, e := range t.elems[:t.n] {
		sh.lit = append(sh.lit, b[at:e.value]...)
		el := &sh.elems[i]
		*el = element{id: e.id, from: len(sh.lit) - (e.value - e.from), value: len(sh.lit)}
		if varying>>i&1 == 1 {
			sh.steps = append(sh.steps, hole{e.id, from, len(sh.lit)})
			from = len(sh.lit)
			sh.empty(e.id)
		} else {
			sh.lit = append(sh.lit, b[e.value:e.to]...)
		}
		el.to = len(sh.lit)
		at = e.to
	}
	sh.lit = append(sh.lit, b[at:end]...)
	sh.last = from
}

// empty makes field id of base what it is when its value is nil.
func (sh *shape) empty(id field) {
	f := &sh.base
	switch id {
	case fHashes:
		f.hashAt, f.hashEnd = 0, 0
	case fParent:
		f.parent, f.hasParent = 0, false
	case fTokens:
		f.tokensAt, f.strTokens = 0, 0
	case fBlockSize:
		f.blockSize = 0
	case fLoraID:
		f.loraID = 0
	case fMedium:
		f.tier, f.hasMedium = kv.GPU, false
	case fLoraName:
		f.lora = ""
	case fExtraKeys:
		f.extraAt, f.nilExtras = 0, 0
	case fGroup:
		f.group = 0
	case fSpec:
		f.attention = kv.Dense
	case fWindow:
		f.window = 0
	case fCopies:
		f.hasCopies = false
	case fOrigin:
		f.reused = false
	case fSalt:
		f.salt = ""
	case fMMKeys:
		f.mmAt = 0
	case fTo:
		f.to, f.hasTo = kv.GPU, false
	case fComponents:
		f.noDense = false
	}
}
