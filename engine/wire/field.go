package wire

import (
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
	moved   // AMD ATOM: blocks changed their tier
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
	case "BlockTransferred":
		return moved
	}
	return foreign
}

// A field is what we know a value of an event by.
type field uint8

const (
	fOther field = iota // nothing that we know
	fType
	fHashes
	fParent
	fTokens
	fBlockSize
	fLoraID
	fMedium
	fLoraName
	fExtraKeys
	fGroup
	fSpec
	fWindow
	fCopies
	fOrigin
	fMetadata
	fSalt
	fMMKeys
	fTo
	fComponents
)

var fieldNames = [...]string{fOther: "?", fType: "type", fHashes: "block_hashes", fParent: "parent_block_hash", fTokens: "token_ids", fBlockSize: "block_size", fLoraID: "lora_id", fMedium: "medium", fLoraName: "lora_name", fExtraKeys: "extra_keys", fGroup: "group_idx", fSpec: "kv_cache_spec_kind", fWindow: "kv_cache_spec_sliding_window", fCopies: "remaining_copy_counts", fOrigin: "origin", fMetadata: "metadata", fSalt: "cache_salt", fMMKeys: "mm_keys", fTo: "to_medium", fComponents: "component_types"}

func fieldOf(key []byte) field {
	switch string(key) {
	case "type":
		return fType
	case "block_hashes":
		return fHashes
	case "parent_block_hash":
		return fParent
	case "token_ids":
		return fTokens
	case "block_size":
		return fBlockSize
	case "lora_id":
		return fLoraID
	case "medium", "from_medium":
		return fMedium
	case "lora_name":
		return fLoraName
	case "extra_keys":
		return fExtraKeys
	case "group_idx":
		return fGroup
	case "kv_cache_spec_kind":
		return fSpec
	case "kv_cache_spec_sliding_window":
		return fWindow
	case "remaining_copy_counts":
		return fCopies
	case "origin":
		return fOrigin
	case "metadata":
		return fMetadata
	case "cache_salt":
		return fSalt
	case "mm_keys":
		return fMMKeys
	case "to_medium":
		return fTo
	case "component_types":
		return fComponents
	}
	return fOther
}

// maxBlock bounds the block size that we believe, in tokens. Hybrid models are
// known with 2,176.
const maxBlock = 1 << 20

// fields is an event while it is read: fields come in any order, and which of
// them matter is known only with the tag. Lists are already in the scratch
// memory, from the marks on.
type fields struct {
	tag       tag
	bad       field // the first that could not be read, fOther: none
	hasParent bool
	reused    bool
	noDense   bool // only other state of a hybrid model came back
	hasCopies bool
	hasMedium bool
	hasTo     bool
	tier      kv.Tier
	to        kv.Tier // that blocks were moved to
	attention kv.Attention
	parent    kv.Handle
	blockSize int32
	window    int32
	group     uint16
	loraID    int64
	lora      string
	salt      string
	tokensAt  int // where the value of token_ids begins
	extraAt   int // where the value of extra_keys begins, 0: none, or nothing but nils
	nilExtras int // as many as extra_keys has then
	mmAt      int // where the value of mm_keys begins, 0: none
	strTokens int // tokens that are strings
	hashAt    int // the only hash is at [hashAt:hashEnd], hashEnd 0: not one
	hashEnd   int

	marks
}

// marks are where the lists of an event begin in the scratch memory.
type marks struct{ tokens, handles, extras, copies int }

// array reads the positional form. Positions of vLLM; a map where vLLM has the
// adapter's name is SGLang's metadata.
func (d *Decoder) array(r *reader, f *fields) bool {
	n, ok := r.arrayLen()
	if !ok {
		return false
	}
	for i := range n {
		id := fOther
		switch {
		case i == 0:
			id = fType
		case f.tag == stored && i < len(storedSlots):
			id = storedSlots[i]
			if i == 7 && r.i < len(r.b) && isMap(r.b[r.i]) {
				id = fMetadata
			}
		case f.tag == removed && i < len(removedSlots):
			id = removedSlots[i]
		case f.tag == moved && i < len(movedSlots):
			id = movedSlots[i]
		case f.tag == cleared && i == 1:
			id = fMedium
		}
		from := r.i
		if !d.field(r, f, id) {
			return false
		}
		d.s.trace.add(id, from, from, r.i)
	}
	return true
}

var (
	storedSlots = [...]field{fType, fHashes, fParent, fTokens, fBlockSize, fLoraID, fMedium,
		fLoraName, fExtraKeys, fGroup, fSpec, fWindow}
	removedSlots = [...]field{fType, fHashes, fMedium, fGroup}
	movedSlots   = [...]field{fType, fHashes, fMedium, fTo, fGroup}
)

// mapping reads the map form.
func (d *Decoder) mapping(r *reader, f *fields) bool {
	n, ok := r.mapLen()
	if !ok {
		return false
	}
	for range n {
		from := r.i
		key, ok := r.bytes()
		if !ok {
			if !r.skip(2) { // a key that is no string, and its value
				return false
			}
			d.s.trace.n = maxElems + 1 // no shape for that
			continue
		}
		id, value := fieldOf(key), r.i
		if !d.field(r, f, id) {
			return false
		}
		d.s.trace.add(id, from, value, r.i)
	}
	return true
}

// field reads the value of one field. It fails only if bytes are missing; a
// value of the wrong type is skipped and remembered.
func (d *Decoder) field(r *reader, f *fields, id field) bool {
	s := d.s
	start := r.i
	ok := true
	switch id {
	case fType:
		var p []byte
		if p, ok = r.bytes(); ok {
			f.tag = tagOf(p)
		}
	case fHashes:
		s.handles, ok = readHandles(r, s.handles[:f.handles])
		f.hashEnd = 0
		if len(s.handles) == f.handles+1 { // a list of one has a header of one byte
			f.hashAt, f.hashEnd = start+1, r.i
		}
	case fParent:
		if f.hasParent = !r.isNil(); f.hasParent {
			f.parent, ok = readHandle(r)
		}
	case fTokens:
		f.tokensAt = r.i
		s.tokens, f.strTokens, ok = readTokens(r, s.tokens[:f.tokens])
	case fBlockSize:
		f.blockSize, ok = smallOrNil(r, maxBlock)
	case fLoraID:
		if !r.isNil() {
			f.loraID, ok = r.small(math.MinInt64, math.MaxInt64)
		}
	case fMedium:
		f.tier, f.hasMedium, ok = readTier(r)
	case fTo:
		f.to, f.hasTo, ok = readTier(r)
	case fComponents:
		f.noDense, ok = readComponents(r)
	case fLoraName:
		f.lora, ok = d.name(r)
	case fSalt:
		f.salt, ok = d.name(r)
	case fExtraKeys:
		f.extraAt, f.nilExtras = 0, 0
		if n, ok := r.nils(); ok {
			f.nilExtras = n
			return true
		}
		if !r.isNil() {
			f.extraAt = r.i
			return r.skip(1)
		}
	case fMMKeys:
		if !r.isNil() {
			f.mmAt = r.i
			return r.skip(1)
		}
	case fGroup:
		var v int32
		v, ok = smallOrNil(r, math.MaxUint16)
		f.group = uint16(v)
	case fSpec:
		var p []byte
		p, ok = bytesOrNil(r)
		f.attention = attentionOf(p)
	case fWindow:
		f.window, ok = smallOrNil(r, math.MaxInt32)
	case fCopies:
		if f.hasCopies = !r.isNil(); f.hasCopies {
			s.copies, ok = readCopies(r, s.copies[:f.copies])
		}
	case fOrigin:
		var p []byte
		if p, ok = bytesOrNil(r); ok {
			f.reused = string(p) == "REUSED"
		}
	case fMetadata:
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
	if f.bad == fOther {
		f.bad = id
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
		switch id := fieldOf(key); id {
		case fSalt, fLoraName:
			if !d.field(r, f, id) {
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
