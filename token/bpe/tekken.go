package bpe

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

const tekkenFile = "tekken.json"

// tekkenSpecials are the control tokens of files from before the list was part
// of the file, in order of id; <SPECIAL_n> fills the rest. (mistral-common 1.13)
var tekkenSpecials = []string{
	"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
	"[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
	"[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
}

// NewTekken makes a tokenizer of a tekken.json. It works as mistral-common's:
// control tokens come first in the ids and are never found in a text, any
// pair merges whose bytes are a token, the lowest token first, and a whole
// word that is a token is taken as it is. addSpecial puts <s> in front.
func NewTekken(data []byte) (*Tokenizer, error) {
	initClasses()
	bad := func(field string, format string, args ...any) error {
		return &BadFile{tekkenFile, field, fmt.Errorf(format, args...)}
	}
	var in struct {
		Config struct {
			Pattern            string `json:"pattern"`
			DefaultVocabSize   int    `json:"default_vocab_size"`
			DefaultNumSpecials int    `json:"default_num_special_tokens"`
		} `json:"config"`
		SpecialTokens []struct {
			Rank     int    `json:"rank"`
			TokenStr string `json:"token_str"`
		} `json:"special_tokens"`
	}
	var head, vocab []byte
	r := &reader{b: data}
	field := "(top)"
	head = append(head, '{')
	r.object(func(key []byte) {
		switch field = string(key); field {
		case "vocab":
			vocab = r.raw()
		case "config", "special_tokens":
			if len(head) > 1 {
				head = append(head, ',')
			}
			head = append(append(append(head, '"'), field...), `":`...)
			head = append(head, r.raw()...)
		default:
			r.raw()
		}
	})
	if r.err != nil {
		return nil, &BadFile{tekkenFile, field, r.err}
	}
	if err := json.Unmarshal(append(head, '}'), &in); err != nil {
		return nil, &BadFile{tekkenFile, "config", err}
	}
	specials := in.Config.DefaultNumSpecials
	keep := in.Config.DefaultVocabSize - specials
	if specials < 0 || keep < 256 || in.Config.DefaultVocabSize > maxID {
		return nil, bad("config", "default_vocab_size %d and default_num_special_tokens %d; want at least 256 tokens of text and at most %d in all",
			in.Config.DefaultVocabSize, specials, maxID)
	}
	scan, ok := patterns[in.Config.Pattern]
	if !ok {
		return nil, &Unsupported{tekkenFile, "config.pattern", fmt.Sprintf("%q", in.Config.Pattern)}
	}
	if vocab == nil {
		return nil, bad("vocab", "is missing")
	}
	s := &spec{file: tekkenFile, byteLevel: true, ignoreMerges: true}
	if err := s.readTekkenVocab(vocab, keep, uint32(specials)); err != nil {
		return nil, &BadFile{tekkenFile, "vocab", err}
	}
	t := &Tokenizer{names: map[string]string{}, addedByID: map[uint32]int{}, addedByKey: map[string]int{}, size: in.Config.DefaultVocabSize}
	name := make([]string, specials)
	for i := range name {
		if name[i] = fmt.Sprintf("<SPECIAL_%d>", i); in.SpecialTokens == nil && i < len(tekkenSpecials) {
			name[i] = tekkenSpecials[i]
		}
	}
	for _, x := range in.SpecialTokens {
		if x.Rank < 0 || x.Rank >= specials {
			return nil, bad("special_tokens", "%q has rank %d; want 0 to %d", x.TokenStr, x.Rank, specials-1)
		}
		name[x.Rank] = x.TokenStr
	}
	for i, n := range name {
		t.addedByID[uint32(i)], t.addedByKey[n] = i, i
		t.added = append(t.added, AddedToken{ID: uint32(i), Content: n, Special: true})
	}
	for attr, n := range map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"} {
		if _, ok := t.addedByKey[n]; ok {
			t.names[attr] = n
		}
	}
	bos, ok := t.addedByKey["<s>"]
	if !ok {
		return nil, bad("special_tokens", "no <s>")
	}
	t.post.before = []uint32{uint32(bos)}
	t.pre = &pretokenizer{stages: []stage{{scan: scan}}}
	var err error
	ms := s.merges
	if t.model, err = newModel(s, func(i int) uint32 { return ms[i].joined }, 0); err != nil {
		return nil, err
	}
	t.cache = newCache()
	t.cuts = newCuts(t)
	return t, nil
}

// readTekkenVocab takes the first keep entries and derives the merges: every
// split of a token into two tokens.
func (s *spec) readTekkenVocab(data []byte, keep int, first uint32) error {
	r := &reader{b: data}
	v := &s.vocab
	v.blob = make([]byte, 0, keep*8)
	var failed error
	var buf []byte
	n := 0
	r.array(func() {
		if n >= keep || failed != nil {
			r.skip(0)
			return
		}
		var rank uint32
		buf = buf[:0]
		r.object(func(key []byte) {
			switch string(key) {
			case "rank":
				rank = r.id()
			case "token_bytes":
				t := r.string()
				var err error
				if buf, err = base64.StdEncoding.AppendDecode(buf[:0], t); err != nil {
					failed = fmt.Errorf("entry %d: %v", n, err)
				}
			default:
				r.skip(0)
			}
		})
		if r.err == nil && failed == nil {
			switch {
			case int(rank) != n:
				failed = fmt.Errorf("entry %d has rank %d", n, rank)
			case len(buf) == 0:
				failed = fmt.Errorf("entry %d has no bytes", n)
			default:
				failed = v.add(first+rank, buf)
			}
		}
		n++
	})
	if r.err != nil {
		return r.err
	}
	if failed == nil && n < keep {
		failed = fmt.Errorf("%d entries; want %d", n, keep)
	}
	if failed != nil {
		return failed
	}
	v.build(func(uint32) bool { return false })
	s.merges = make([]merge, 0, 2*keep)
	for id := range v.spans {
		b := v.bytes(uint32(id))
		for i := 1; i < len(b); i++ {
			left := v.find(b[:i])
			if left == noID {
				continue
			}
			if right := v.find(b[i:]); right != noID {
				s.merges = append(s.merges, merge{left, right, uint32(id)})
			}
		}
	}
	return nil
}
