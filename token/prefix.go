package token

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"kvasir/token/chat"
)

// An encoder is what the prefix cache needs of a tokenizer; *bpe.Tokenizer is one.
type encoder interface {
	Encode(dst []uint32, text []byte, addSpecial bool) []uint32
	// CutBefore returns a place c <= at where every text that begins with
	// text[:at] may be cut without changing its ids.
	CutBefore(text []byte, at int) int
}

// prefixes keeps the ids of texts' beginnings, so that the next turn of a
// conversation costs what its new text costs, and system prompts and tool schemas
// are encoded once per fleet of requests.
//
// A text is cut into pieces of about pieceSize bytes at places that are provably
// safe for its tokenizer. Where a piece ends depends only on the bytes up to
// there, so texts with a common beginning have common pieces. A piece is known by
// a hash that is chained over all pieces before it; the last, short piece is
// always encoded afresh.
//
// There is no global lock: pieces lie in shards by their hash. Memory is bounded
// in bytes; pieces that were not used since the hand of their shard's clock came
// by last go first.
type prefixes struct {
	seeds  [2]maphash.Seed
	max    int64 // bytes, per shard
	shards [prefixShards]prefixShard
	stats  struct{ hits, misses, evicted atomic.Uint64 }
}

const (
	prefixShards = 16
	pieceSize    = 2 << 10
	// A piece costs its ids and about this much more, in bytes: the map's entry,
	// the clock's and the allocation's overhead.
	pieceOverhead = 128
)

// A pieceKey is 128 bits, chained over the text's beginning: at 10^9 pieces a
// chance collision is beyond belief, and seeds are per process.
type pieceKey [2]uint64

type piece struct {
	key  pieceKey
	ids  []uint32
	used atomic.Bool
}

type prefixShard struct {
	mu    sync.RWMutex
	by    map[pieceKey]*piece // guarded by mu
	clock []*piece            // guarded by mu
	hand  int                 // guarded by mu
	bytes int64               // guarded by mu
	_     [64]byte            // no sharing of cache lines
}

func newPrefixes(maxBytes int64) *prefixes {
	p := &prefixes{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, max: maxBytes / prefixShards}
	for i := range p.shards {
		p.shards[i].by = map[pieceKey]*piece{}
	}
	return p
}

// A walk is the memory of one encode that can be used again.
type walk struct {
	found []*piece
	ids   []uint32
}

var walks = sync.Pool{New: func() any { return new(walk) }}

// encode appends the ids of text, without special tokens, to dst, with room for
// slack more. Texts of different tokenizers must come with different values of
// space.
func (p *prefixes) encode(dst []uint32, enc encoder, space uint64, text []byte, slack int) []uint32 {
	var forEver context.Context
	ids, _ := p.encodeWhile(forEver, dst, enc, space, text, slack) // without a context there is no error
	return ids
}

// maxStretch bounds a stretch of text without a safe place to cut, in bytes, where somebody
// waits: it can't be left before its end, and takes about .5 s for each MiB.
const maxStretch = 256 << 10

var errStretch = errors.New("a stretch of the text is too long to be encoded in one piece")

// encodeWhile is encode as long as ctx lasts; nil is for ever.
func (p *prefixes) encodeWhile(ctx context.Context, dst []uint32, enc encoder, space uint64, text []byte, slack int) ([]uint32, error) {
	w := walks.Get().(*walk)
	defer w.release()
	key := pieceKey{space, ^space}
	at := 0
	for end := cut(enc, text, 0); end > 0; end = cut(enc, text, at) {
		if ctx != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if ctx != nil && end-at > maxStretch {
			return nil, errStretch
		}
		key = p.next(key, text[at:end])
		x := p.get(key)
		if x == nil {
			w.ids = enc.Encode(w.ids[:0], text[at:end], false)
			x = p.keep(key, w.ids)
		}
		w.found = append(w.found, x)
		at = end
	}
	if ctx != nil && len(text)-at > maxStretch {
		return nil, errStretch
	}
	w.ids = enc.Encode(w.ids[:0], text[at:], false)
	return w.join(dst, slack), nil
}

// encodeParts is encode for a prompt whose parts are encoded one by one: a piece
// is as many whole parts as make up pieceSize.
func (p *prefixes) encodeParts(ctx context.Context, dst []uint32, enc chat.Encoder, space uint64, parts []chat.Part) ([]uint32, error) {
	w := walks.Get().(*walk)
	defer w.release()
	key := pieceKey{^space, space} // no text has this beginning
	at, size := 0, 0
	for i := range parts {
		text := parts[i].Text
		if parts[i].Control {
			key[0]++
		}
		key = p.next(key, unsafe.Slice(unsafe.StringData(text), len(text)))
		if size += len(text); size < pieceSize {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		x := p.get(key)
		if x == nil {
			var err error
			if w.ids, err = encodeEach(w.ids[:0], enc, parts[at:i+1]); err != nil {
				return nil, err
			}
			x = p.keep(key, w.ids)
		}
		w.found = append(w.found, x)
		at, size = i+1, 0
	}
	var err error
	if w.ids, err = encodeEach(w.ids[:0], enc, parts[at:]); err != nil {
		return nil, err
	}
	return w.join(dst, 0), nil
}

func encodeEach(dst []uint32, enc chat.Encoder, parts []chat.Part) ([]uint32, error) {
	if len(parts) == 0 {
		return dst, nil
	}
	return (&chat.Prompt{Parts: parts}).Encode(dst, enc)
}

// keep makes a piece of ids, which it copies.
func (p *prefixes) keep(key pieceKey, ids []uint32) *piece {
	x := &piece{key: key, ids: append(make([]uint32, 0, len(ids)), ids...)}
	p.put(x)
	return x
}

// join appends the ids of the pieces that were found, and those in w.ids.
func (w *walk) join(dst []uint32, slack int) []uint32 {
	n := len(w.ids) + slack
	for _, x := range w.found {
		n += len(x.ids)
	}
	dst = slices.Grow(dst, n)
	for _, x := range w.found {
		dst = append(dst, x.ids...)
	}
	return append(dst, w.ids...)
}

func (w *walk) release() {
	if cap(w.ids) > 1<<18 { // let the collector have it
		w.ids = nil
	}
	clear(w.found)
	w.found = w.found[:0]
	walks.Put(w)
}

// cut returns where the piece that begins at at ends, or 0 if the rest of the text
// is too short or has no safe place. The window doubles, so that a long stretch
// without safe places is not searched again and again: the time is linear.
func cut(enc encoder, text []byte, at int) int {
	for n := pieceSize; n <= len(text)-at; n *= 2 {
		if end := at + enc.CutBefore(text[at:], n); end > at {
			return end
		}
	}
	return 0
}

func (p *prefixes) next(key pieceKey, text []byte) pieceKey {
	return pieceKey{
		(key[0]^maphash.Bytes(p.seeds[0], text))*0x9e3779b97f4a7c15 + 1,
		(key[1]^maphash.Bytes(p.seeds[1], text))*0xd1342543de82ef95 + 1,
	}
}

func (p *prefixes) get(key pieceKey) *piece {
	s := &p.shards[key[0]>>60]
	s.mu.RLock()
	x := s.by[key]
	s.mu.RUnlock()
	if x == nil {
		p.stats.misses.Add(1)
		return nil
	}
	p.stats.hits.Add(1)
	if !x.used.Load() {
		x.used.Store(true)
	}
	return x
}

func (p *prefixes) put(x *piece) {
	size := x.size()
	if size > p.max {
		return
	}
	s := &p.shards[x.key[0]>>60]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[x.key] != nil {
		return
	}
	for s.bytes+size > p.max {
		s.evict()
		p.stats.evicted.Add(1)
	}
	s.by[x.key] = x
	s.clock = append(s.clock, x)
	s.bytes += size
}

func (x *piece) size() int64 { return int64(4*cap(x.ids)) + pieceOverhead }

// evict takes out the next piece that was not used lately; the caller holds mu,
// and there is at least one piece.
func (s *prefixShard) evict() {
	for {
		if s.hand >= len(s.clock) {
			s.hand = 0
		}
		x := s.clock[s.hand]
		if x.used.Swap(false) {
			s.hand++
			continue
		}
		last := len(s.clock) - 1
		s.clock[s.hand], s.clock[last] = s.clock[last], nil
		s.clock = s.clock[:last]
		delete(s.by, x.key)
		s.bytes -= x.size()
		return
	}
}

// PrefixStats says what a prefix cache has done.
type PrefixStats struct {
	Hits, Misses, Evicted uint64 // pieces
	Bytes                 int64
}

func (p *prefixes) snapshot() PrefixStats {
	out := PrefixStats{Hits: p.stats.hits.Load(), Misses: p.stats.misses.Load(), Evicted: p.stats.evicted.Load()}
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.RLock()
		out.Bytes += s.bytes
		s.mu.RUnlock()
	}
	return out
}
