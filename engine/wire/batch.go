package wire

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"kvasir/kv"
)

// NoRank is the rank of a batch that doesn't say one.
const NoRank = -1

// A Batch is one message of a publisher. Events and everything that they point
// to belong to the Decoder and are valid until its next Decode.
type Batch struct {
	Time   float64 // unix seconds by the engine's clock, 0 if absent or no finite number
	Rank   int     // data-parallel rank, NoRank if absent
	Events []kv.Event
	Missed int // stores that were not understood: we know less than there is
	Lost   int // removals, clears or untagged events that were not understood: we may believe too much
	Blocks int // hashes stored or removed
}

// Stats counts since the Decoder was made.
type Stats struct {
	Batches    uint64
	Events     uint64 // understood
	Blocks     uint64 // hashes stored or removed
	Unknown    uint64 // events of a type that we don't know
	Malformed  uint64 // events of a known type that could not be read
	Misaligned uint64 // dense stores whose tokens don't fill their blocks: passed on without tokens
	Opaque     uint64 // dense stores without tokens (placeholders of lower tiers, publishers without token ids)
	BadRank    uint64 // batches whose rank was no rank
	Bad        uint64 // payloads that were no batch
}

// A Decoder decodes the payloads of one publisher. The zero Decoder works. It
// is not safe for concurrent use.
type Decoder struct {
	Seed     kv.Seed // of the digests of extra content
	Model    string  // for kv.Key.Model
	ClearAll bool    // AllBlocksCleared without a medium clears all tiers, not only the GPU's

	Stats Stats
	// LastError is the reason why the last malformed event or payload was malformed.
	LastError error

	groups [maxGroups]kv.Attention // kind of each cache group, from its stores, for its removals
	known  [maxGroups]bool
	names  names
	slow   bool // tests: decode repetitions like everything else
	s      *scratch
}

const maxGroups = 64

// scratch is the memory that a batch is decoded into. Idle decoders have none.
type scratch struct {
	events  []kv.Event
	tokens  []uint32
	handles []kv.Handle
	extras  []kv.Extra
	copies  []int32
	again   repeat
	shapes  shapes
	trace   trace
	fields  fields // of the event that is decoded
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// hoard is the capacity, in tokens or handles, above which scratch memory is
// not given back to the pool: one giant batch must not stay.
const hoard = 1 << 18

// Release gives the scratch memory back. The last Batch is invalid then.
func (d *Decoder) Release() {
	s := d.s
	d.s = nil
	if s != nil && cap(s.tokens) <= hoard && cap(s.handles) <= hoard && cap(s.events) <= hoard/8 {
		scratches.Put(s)
	}
}

// ErrBatch is wrapped by the error of a payload that is no batch.
var ErrBatch = errors.New("wire: not a batch of KV events")

// Decode decodes a payload. An error means that the payload, or the rest of
// it, could not be read; the events before that point are in the batch and are
// true, but others are missing.
func (d *Decoder) Decode(payload []byte) (Batch, error) {
	if d.s == nil {
		d.s = scratches.Get().(*scratch)
	}
	s := d.s
	s.events, s.tokens, s.handles = s.events[:0], s.tokens[:0], s.handles[:0]
	s.extras, s.copies, s.again = s.extras[:0], s.copies[:0], repeat{}

	b := Batch{Rank: NoRank}
	r := reader{b: payload}
	err := d.batch(&r, &b)
	b.Events = s.events
	d.Stats.Batches++
	d.Stats.Blocks += uint64(b.Blocks)
	if err != nil {
		d.Stats.Bad++
		d.LastError = err
	}
	return b, err
}

func (d *Decoder) batch(r *reader, b *Batch) error {
	if n, ok := r.arrayLen(); ok {
		for slot := range n {
			ok := true
			switch slot {
			case 0:
				ok = batchTime(r, b)
			case 1:
				ok = d.events(r, b)
			case 2:
				ok = d.rank(r, b)
			default:
				ok = r.skip(1)
			}
			if !ok {
				return broken(r, n, slot)
			}
		}
		if n < 2 {
			return fmt.Errorf("%w: an array of %d, want [time, events, rank]", ErrBatch, n)
		}
		return nil
	}
	n, ok := r.mapLen()
	if !ok {
		return fmt.Errorf("%w: it begins with byte 0x%02x (%d bytes in all), want an array or a map", ErrBatch, r.peek(), len(r.b))
	}
	found := false
	for pair := range n {
		key, ok := r.bytes()
		if !ok && !r.skip(1) { // a key that is no string
			return broken(r, n, pair)
		}
		switch string(key) {
		case "ts":
			ok = batchTime(r, b)
		case "events":
			found = true
			ok = d.events(r, b)
		case "data_parallel_rank", "attn_dp_rank":
			ok = d.rank(r, b)
		default:
			ok = r.skip(1)
		}
		if !ok {
			return broken(r, n, pair)
		}
	}
	if !found {
		return fmt.Errorf("%w: a map of %d without the key events", ErrBatch, n)
	}
	return nil
}

func broken(r *reader, n, at int) error {
	if r.short {
		return fmt.Errorf("%w: the payload ends at byte %d of %d, inside element %d of %d", ErrBatch, r.i, len(r.b), at, n)
	}
	return fmt.Errorf("%w: element %d of %d has an unexpected type (byte 0x%02x)", ErrBatch, at, n, r.peek())
}

// batchTime reads the time stamp. Whatever is no finite number is no time.
func batchTime(r *reader, b *Batch) bool {
	v, ok := r.float()
	if !ok {
		return r.skip(1)
	}
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		b.Time = v
	}
	return true
}

func (d *Decoder) rank(r *reader, b *Batch) bool {
	if r.isNil() {
		return true
	}
	if v, ok := r.small(0, math.MaxUint16); ok {
		b.Rank = int(v)
		return true
	}
	d.Stats.BadRank++
	return r.skip(1)
}

func (d *Decoder) events(r *reader, b *Batch) bool {
	if r.isNil() {
		return true
	}
	n, ok := r.arrayLen()
	for i := 0; ok && i < n; i++ {
		if d.s.again.end > 0 && !d.slow {
			k := d.s.again.run(r, d.s, n-i)
			b.Blocks += k
			d.Stats.Events += uint64(k)
			if i += k; i == n {
				break
			}
		}
		ok = d.event(r, b)
	}
	return ok
}

// PeekTime returns the time stamp of a payload without decoding it, 0 if there
// is none in front.
func PeekTime(payload []byte) float64 {
	r := reader{b: payload}
	var b Batch
	if n, ok := r.arrayLen(); ok {
		if n > 0 {
			batchTime(&r, &b)
		}
		return b.Time
	}
	n, _ := r.mapLen()
	for range n {
		key, ok := r.bytes()
		if ok && string(key) == "ts" {
			batchTime(&r, &b)
			return b.Time
		}
		if !ok && !r.skip(1) || !r.skip(1) {
			return 0
		}
	}
	return 0
}

// PeekRank returns the rank of a payload without decoding its events, NoRank if
// it has none.
func PeekRank(payload []byte) int {
	r := reader{b: payload}
	b := Batch{Rank: NoRank}
	var d Decoder
	if n, ok := r.arrayLen(); ok {
		if n > 2 && r.skip(2) {
			d.rank(&r, &b)
		}
		return b.Rank
	}
	n, _ := r.mapLen()
	for range n {
		key, ok := r.bytes()
		if !ok && !r.skip(1) {
			break
		}
		if k := string(key); k == "data_parallel_rank" || k == "attn_dp_rank" {
			d.rank(&r, &b)
		} else if !r.skip(1) {
			break
		}
	}
	return b.Rank
}
