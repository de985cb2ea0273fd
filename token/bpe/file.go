package bpe

import (
	"encoding/json"
	"fmt"
)

// maxID bounds token ids: the cache packs them in 21 bits, all ones for none.
const maxID = 1<<21 - 2

// Unsupported says that a tokenizer needs something this package does not do.
// The caller is expected to have the engine tokenize instead.
type Unsupported struct {
	File  string // base name
	Field string // path in the file, such as "pre_tokenizer.pretokenizers[0].type"
	Value string // what was found there
}

func (e *Unsupported) Error() string {
	return fmt.Sprintf("%s: %s: %s is not supported; let the engine tokenize for this model", e.File, e.Field, e.Value)
}

// BadFile says that a file is broken.
type BadFile struct {
	File  string // base name
	Field string
	Err   error
}

func (e *BadFile) Error() string { return fmt.Sprintf("%s: %s: %v", e.File, e.Field, e.Err) }
func (e *BadFile) Unwrap() error { return e.Err }

// An AddedToken is matched in the text before anything else.
type AddedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only between characters that are not of a word
	LStrip     bool   `json:"lstrip"`      // takes the white space before it along
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"` // matched in the normalized text, after the others
	Special    bool   `json:"special"`
}

// A component is a normalizer, pre-tokenizer, post-processor or decoder as
// tokenizer.json spells it: the union of the fields that matter.
type component struct {
	Type string `json:"type"`

	Normalizers   []component `json:"normalizers"`
	Pretokenizers []component `json:"pretokenizers"`
	Processors    []component `json:"processors"`
	Decoders      []component `json:"decoders"`

	Pattern          *pattern `json:"pattern"`
	Content          string   `json:"content"`
	Prepend          string   `json:"prepend"`
	Behavior         string   `json:"behavior"`
	Invert           bool     `json:"invert"`
	AddPrefixSpace   *bool    `json:"add_prefix_space"`
	UseRegex         *bool    `json:"use_regex"`
	Replacement      string   `json:"replacement"`
	PrependScheme    string   `json:"prepend_scheme"`
	Split            *bool    `json:"split"`
	IndividualDigits bool     `json:"individual_digits"`
	StripLeft        *bool    `json:"strip_left"`
	StripRight       *bool    `json:"strip_right"`

	Single        []piece                   `json:"single"`
	SpecialTokens map[string]templateTokens `json:"special_tokens"`
	Cls           json.RawMessage           `json:"cls"` // ["<s>", 0]
	Sep           json.RawMessage           `json:"sep"`
	Start         int                       `json:"start"` // of the decoder Strip
	Stop          int                       `json:"stop"`
}

type pattern struct {
	String *string
	Regex  *string
}

type piece struct {
	SpecialToken *struct{ ID string }
	Sequence     *struct{ ID string }
}

type templateTokens struct {
	IDs []uint32 `json:"ids"`
}

// A spec is what tokenizer.json says, with the bulk in flat arrays.
type spec struct {
	file string

	vocab  tokens
	merges []merge // in order of rank

	added         []AddedToken
	normalizer    *component
	pretokenizer  *component
	postprocessor *component
	decoder       *component

	unk          string
	hasUnk       bool
	fuseUnk      bool
	byteFallback bool
	ignoreMerges bool
	byteLevel    bool // the tokens of vocab are raw bytes already
}

// readSpec parses tokenizer.json. Truncation and padding are left alone on
// purpose: they would cut and fill what the engine does not.
func readSpec(data []byte) (*spec, error) {
	const file = "tokenizer.json"
	s := &spec{file: file}
	r := &reader{b: data}
	var model []byte
	field := "(top)"
	var failed error
	part := func(into any) {
		raw := r.raw()
		if r.err == nil && failed == nil {
			if err := json.Unmarshal(raw, into); err != nil {
				failed = &BadFile{file, field, err}
			}
		}
	}
	r.object(func(key []byte) {
		field = string(key)
		switch field {
		case "added_tokens":
			part(&s.added)
		case "normalizer":
			part(&s.normalizer)
		case "pre_tokenizer":
			part(&s.pretokenizer)
		case "post_processor":
			part(&s.postprocessor)
		case "decoder":
			part(&s.decoder)
		case "model":
			model = r.raw() // after the rest is known: it needs byteLevel
		default:
			r.raw()
		}
	})
	if r.err != nil {
		return nil, &BadFile{file, field, r.err}
	}
	if r.next(); r.i != len(data) {
		return nil, &BadFile{file, "(end)", fmt.Errorf("at byte %d: text after the object", r.i)}
	}
	if failed != nil {
		return nil, failed
	}
	if model == nil {
		return nil, &BadFile{file, "model", fmt.Errorf("is missing; want an object of type BPE")}
	}
	s.byteLevel = usesByteLevel(s.pretokenizer)
	return s, s.readModel(model)
}

func usesByteLevel(c *component) bool {
	if c == nil {
		return false
	}
	for i := range c.Pretokenizers {
		if usesByteLevel(&c.Pretokenizers[i]) {
			return true
		}
	}
	return c.Type == "ByteLevel"
}

func (s *spec) readModel(data []byte) error {
	r := &reader{b: data}
	var head struct {
		Type                    string   `json:"type"`
		Dropout                 *float64 `json:"dropout"`
		UnkToken                *string  `json:"unk_token"`
		ContinuingSubwordPrefix string   `json:"continuing_subword_prefix"`
		EndOfWordSuffix         string   `json:"end_of_word_suffix"`
		FuseUnk                 bool     `json:"fuse_unk"`
		ByteFallback            bool     `json:"byte_fallback"`
		IgnoreMerges            bool     `json:"ignore_merges"`
	}
	small := []byte{'{'} // everything but vocab and merges
	var vocab, merges []byte
	field := "model"
	r.object(func(key []byte) {
		field = "model." + string(key)
		switch string(key) {
		case "vocab":
			vocab = r.raw()
		case "merges":
			merges = r.raw()
		default:
			if len(small) > 1 {
				small = append(small, ',')
			}
			small = append(append(append(small, '"'), key...), `":`...)
			small = append(small, r.raw()...)
		}
	})
	if r.err != nil {
		return &BadFile{s.file, field, r.err}
	}
	if err := json.Unmarshal(append(small, '}'), &head); err != nil {
		return &BadFile{s.file, "model", err}
	}
	switch {
	case head.Type != "BPE" && !(head.Type == "" && merges != nil): // old files leave the type out
		return &Unsupported{s.file, "model.type", fmt.Sprintf("%q", head.Type)}
	case head.Dropout != nil && *head.Dropout != 0:
		return &Unsupported{s.file, "model.dropout", fmt.Sprint(*head.Dropout)}
	case head.ContinuingSubwordPrefix != "":
		return &Unsupported{s.file, "model.continuing_subword_prefix", fmt.Sprintf("%q", head.ContinuingSubwordPrefix)}
	case head.EndOfWordSuffix != "":
		return &Unsupported{s.file, "model.end_of_word_suffix", fmt.Sprintf("%q", head.EndOfWordSuffix)}
	case vocab == nil || merges == nil:
		return &BadFile{s.file, "model", fmt.Errorf("vocab or merges are missing")}
	}
	if head.UnkToken != nil {
		s.unk, s.hasUnk = *head.UnkToken, true
	}
	s.fuseUnk, s.byteFallback, s.ignoreMerges = head.FuseUnk, head.ByteFallback, head.IgnoreMerges
	if err := s.readVocab(vocab); err != nil {
		return &BadFile{s.file, "model.vocab", err}
	}
	if err := s.readMerges(merges); err != nil {
		return &BadFile{s.file, "model.merges", err}
	}
	return nil
}
