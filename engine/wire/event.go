package wire

import (
	"fmt"
	"math"

	"kvasir/kv"
)

// A tag says what an event calls itself.
type tag uint8

const (
	untagged tag = iota
	stored
	removed
	cleared
	foreign // a type that we don't know
)

func tagOf(name []byte) tag {
	switch string(name) {
	case "BlockStored":
		return stored
	case "BlockRemoved":
		return removed
	case "AllBlocksCleared":
		return cleared
	}
	return foreign
}

// maxBlock bounds the block size that we believe, in tokens. Hybrid models are
// known with 2,176.
const maxBlock = 1 << 20

// fields is an event while it is read: fields come in any order, and which of
// them matter is known only with the tag. Lists are already in the scratch
// memory, from the marks on.
type fields struct {
	tag       tag
	bad       string // the first field that could not be read
	hasParent bool
	reused    bool
	hasCopies bool
	parent    kv.Handle
	blockSize int32
	window    int32
	group     uint16
	loraID    int64
	medium    []byte
	spec      []byte
	lora      []byte
	salt      []byte
	tokensAt  int // where the value of token_ids begins
	extraAt   int // where the value of extra_keys begins, 0: none
	mmAt      int // where the value of mm_keys begins, 0: none
	strTokens int // tokens that are strings

	tokens, handles, extras, copies int // marks
}

// event decodes one event. It fails only if the payload can't be read any further.
func (d *Decoder) event(r *reader, b *Batch) bool {
	s := d.s
	start := r.i
	f := fields{tokens: len(s.tokens), handles: len(s.handles), extras: len(s.extras), copies: len(s.copies)}
	c := r.peek()
	switch {
	case isArray(c):
		if !d.array(r, &f) {
			return false
		}
	case isMap(c):
		if !d.mapping(r, &f) {
			return false
		}
	default: // whatever it is, it is no event
		f.tag = foreign
		if !r.skip(1) {
			return false
		}
	}
	ok := false
	if f.bad == "" {
		switch f.tag {
		case stored:
			ok = d.stored(r.b, &f, b)
		case removed:
			ok = d.removed(&f, b)
		case cleared:
			ok = d.cleared(&f)
		}
	}
	if ok {
		d.Stats.Events++
		return true
	}
	s.tokens, s.handles, s.extras, s.copies = s.tokens[:f.tokens], s.handles[:f.handles], s.extras[:f.extras], s.copies[:f.copies]
	switch f.tag {
	case foreign:
		d.Stats.Unknown++
		return true
	case stored:
		b.Missed++
	default:
		b.Lost++
	}
	d.Stats.Malformed++
	what := f.bad
	if what == "" {
		what = "type"
	}
	d.LastError = fmt.Errorf("wire: event at byte %d to %d of the payload: field %q can't be read", start, r.i, what)
	return true
}

// array reads the positional form. Positions of vLLM; a map where vLLM has the
// adapter's name is SGLang's metadata.
func (d *Decoder) array(r *reader, f *fields) bool {
	n, ok := r.arrayLen()
	if !ok {
		return false
	}
	for i := range n {
		name := ""
		switch {
		case i == 0:
			name = "type"
		case f.tag == stored && i < len(storedSlots):
			name = storedSlots[i]
			if i == 7 && r.i < len(r.b) && isMap(r.b[r.i]) {
				name = "metadata"
			}
		case f.tag == removed && i < len(removedSlots):
			name = removedSlots[i]
		case f.tag == cleared && i == 1:
			name = "medium"
		}
		if !d.field(r, f, name) {
			return false
		}
	}
	return true
}

var (
	storedSlots = [...]string{"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
		"lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"}
	removedSlots = [...]string{"type", "block_hashes", "medium", "group_idx"}
)

// mapping reads the map form.
func (d *Decoder) mapping(r *reader, f *fields) bool {
	n, ok := r.mapLen()
	if !ok {
		return false
	}
	for range n {
		key, ok := r.bytes()
		if !ok {
			if !r.skip(2) { // a key that is no string, and its value
				return false
			}
			continue
		}
		if !d.field(r, f, string(key)) {
			return false
		}
	}
	return true
}

// field reads the value of one field. It fails only if bytes are missing; a
// value of the wrong type is skipped and remembered.
func (d *Decoder) field(r *reader, f *fields, name string) bool {
	s := d.s
	start := r.i
	ok := true
	switch name {
	case "type":
		var p []byte
		if p, ok = r.bytes(); ok {
			f.tag = tagOf(p)
		}
	case "block_hashes":
		s.handles, ok = readHandles(r, s.handles[:f.handles])
	case "parent_block_hash":
		if f.hasParent = !r.isNil(); f.hasParent {
			f.parent, ok = readHandle(r)
		}
	case "token_ids":
		f.tokensAt = r.i
		s.tokens, f.strTokens, ok = readTokens(r, s.tokens[:f.tokens])
	case "block_size":
		f.blockSize, ok = smallOrNil(r, maxBlock)
	case "lora_id":
		if !r.isNil() {
			f.loraID, ok = r.small(math.MinInt64, math.MaxInt64)
		}
	case "medium":
		f.medium, ok = bytesOrNil(r)
	case "lora_name":
		f.lora, ok = bytesOrNil(r)
	case "cache_salt":
		f.salt, ok = bytesOrNil(r)
	case "extra_keys":
		if !r.isNil() {
			f.extraAt = r.i
			return r.skip(1)
		}
	case "mm_keys":
		if !r.isNil() {
			f.mmAt = r.i
			return r.skip(1)
		}
	case "group_idx":
		var v int32
		v, ok = smallOrNil(r, math.MaxUint16)
		f.group = uint16(v)
	case "kv_cache_spec_kind":
		f.spec, ok = bytesOrNil(r)
	case "kv_cache_spec_sliding_window":
		f.window, ok = smallOrNil(r, math.MaxInt32)
	case "remaining_copy_counts":
		if f.hasCopies = !r.isNil(); f.hasCopies {
			s.copies, ok = readCopies(r, s.copies[:f.copies])
		}
	case "origin":
		var p []byte
		if p, ok = bytesOrNil(r); ok {
			f.reused = string(p) == "REUSED"
		}
	case "metadata":
		if n, isMap := r.mapLen(); isMap {
			return d.metadata(r, f, n)
		}
		return r.skip(1)
	default:
		return r.skip(1)
	}
	if ok {
		return true
	}
	if f.bad == "" {
		f.bad = knownField(name)
	}
	r.i = start
	return !r.short && r.skip(1)
}

// metadata reads SGLang's nested map: only what is about content.
func (d *Decoder) metadata(r *reader, f *fields, n int) bool {
	for range n {
		key, ok := r.bytes()
		if !ok {
			if !r.skip(2) {
				return false
			}
			continue
		}
		switch k := string(key); k {
		case "cache_salt", "lora_name":
			if !d.field(r, f, k) {
				return false
			}
		default:
			if !r.skip(1) {
				return false
			}
		}
	}
	return true
}

// knownField returns a constant equal to name, so that name's bytes may change.
func knownField(name string) string {
	for _, k := range [...]string{"type", "cache_salt", "remaining_copy_counts", "origin"} {
		if k == name {
			return k
		}
	}
	for _, k := range storedSlots {
		if k == name {
			return k
		}
	}
	return "?"
}

func (d *Decoder) stored(payload []byte, f *fields, b *Batch) bool {
	s := d.s
	e := kv.Event{
		Kind: kv.Stored, Tier: tierOf(f.medium), Attention: attentionOf(f.spec), Group: f.group,
		BlockSize: f.blockSize, Reused: f.reused,
		Parent: f.parent, Root: !f.hasParent || f.parent == 0, // llm-d's simulator writes 0 for no parent
		Key: kv.Key{Model: d.Model},
	}
	if e.Attention == kv.Sliding {
		e.Window = f.window
	}
	if int(f.group) < maxGroups {
		d.groups[f.group], d.known[f.group] = e.Attention, true
	}
	switch {
	case len(f.lora) > 0:
		e.Key.LoRA = d.names.of(f.lora)
	case f.loraID > 0: // of this process only, and no request can name it
		e.Key.LoRA = d.names.numbered(f.loraID)
	}
	if len(f.salt) > 0 {
		e.Key.Salt = d.names.of(f.salt)
	}
	e.Handles = s.handles[f.handles:]
	e.Tokens = s.tokens[f.tokens:]
	if e.Attention == kv.Dense && len(e.Handles) > 0 {
		fits := len(e.Tokens) == len(e.Handles)*int(e.BlockSize)
		if fits && (f.extraAt > 0 || f.mmAt > 0 || f.strTokens > 0) {
			fits = d.contents(payload, f, &e)
		}
		switch {
		case len(e.Tokens) == 0:
			d.Stats.Opaque++
		case !fits:
			d.Stats.Misaligned++
			e.Tokens, e.Extras = nil, nil
		}
		if len(e.Tokens) == 0 && e.Tier == kv.GPU {
			b.Missed++
		}
	}
	b.Blocks += len(e.Handles)
	s.events = append(s.events, e)
	return true
}

// removed appends a removal, or extends the one before: vLLM sends an event for
// each evicted block, many in a row.
func (d *Decoder) removed(f *fields, b *Batch) bool {
	s := d.s
	e := kv.Event{Kind: kv.Removed, Tier: tierOf(f.medium), Group: f.group, Handles: s.handles[f.handles:]}
	if int(f.group) < maxGroups && d.known[f.group] {
		e.Attention = d.groups[f.group]
	}
	if f.hasCopies && len(s.copies)-f.copies == len(e.Handles) {
		e.Copies = s.copies[f.copies:]
	}
	b.Blocks += len(e.Handles)
	if n := len(s.events); n > 0 && e.Copies == nil {
		p := &s.events[n-1]
		if p.Kind == kv.Removed && p.Tier == e.Tier && p.Group == e.Group && p.Attention == e.Attention && p.Copies == nil {
			p.Handles = s.handles[f.handles-len(p.Handles):]
			return true
		}
	}
	s.events = append(s.events, e)
	return true
}

func (d *Decoder) cleared(f *fields) bool {
	e := kv.Event{Kind: kv.Cleared, Tier: tierOf(f.medium), AllTiers: d.ClearAll && len(f.medium) == 0}
	d.s.events = append(d.s.events, e)
	return true
}
