// Package bpe turns text into the token ids that an engine would give it, for
// the byte-pair tokenizers of Hugging Face's tokenizer.json (byte level, or
// characters with byte fallback) and Mistral's tekken.json.
//
// The reference is tokenizers 0.23.3 as vLLM 0.33.0 uses it; ids are equal to
// its ids on every line of the fixtures in testdata. What a file asks for and
// this package does not do is refused at Load with an *Unsupported that names
// it: the engine has to tokenize then.
//
// A Tokenizer is immutable and safe for concurrent use. Its only moving part
// is a bounded cache of short words.
package bpe

import (
	"sync"
	"unicode/utf8"
	"unsafe"
)

// A Tokenizer encodes and decodes for one set of files.
type Tokenizer struct {
	model *model
	cache *cache
	pre   *pretokenizer
	norm  normalizer
	post  post

	raw        *addedSet // matched in the text as it is, or nil
	normalized *addedSet // matched in the normalized text, or nil
	added      []AddedToken
	addedByID  map[uint32]int
	addedByKey map[string]int
	size       int               // highest id + 1
	names      map[string]string // bos_token and so on
	ends       []uint32
	decoder    decoder
	cuts       cuts
	scratch    sync.Pool
}

// VocabSize is the highest token id, plus one.
func (t *Tokenizer) VocabSize() int { return t.size }

// EncodeString is Encode for a string.
func (t *Tokenizer) EncodeString(dst []uint32, text string, addSpecial bool) []uint32 {
	return t.Encode(dst, unsafe.Slice(unsafe.StringData(text), len(text)), addSpecial)
}

// Encode appends the token ids of text to dst. With addSpecial, the
// post-processor adds what it adds (a BOS, mostly): completions want that, a
// rendered chat does not. Added tokens are found in the text either way, as
// the reference finds them.
//
// Bytes that are not UTF-8 count as U+FFFD, one for each maximal part of a
// character (as Python's errors="replace" and Rust's lossy conversion have it).
//
// Time is linear in the text except for words without seams longer than a few
// kilobytes, which cost n log(8192); memory beyond dst is bounded by a copy of
// the text, and is none for most models.
func (t *Tokenizer) Encode(dst []uint32, text []byte, addSpecial bool) []uint32 {
	s, _ := t.scratch.Get().(*scratch)
	if s == nil {
		s = &scratch{}
	}
	if addSpecial {
		dst = append(dst, t.post.before...)
	}
	dst = t.encode(dst, text, s)
	if addSpecial {
		dst = append(dst, t.post.after...)
	}
	s.shrink()
	t.scratch.Put(s)
	return dst
}

func (t *Tokenizer) encode(dst []uint32, text []byte, s *scratch) []uint32 {
	if !utf8.Valid(text) {
		s.valid = appendValid(s.valid[:0], text)
		text = s.valid
	}
	if t.raw == nil {
		return t.segment(dst, text, true, s)
	}
	for done, i := 0, 0; ; {
		start, end, token := t.raw.find(text, i)
		if token == nil {
			if done < len(text) {
				dst = t.segment(dst, text[done:], done == 0, s)
			}
			return dst
		}
		i = end
		start, end, ok := token.span(text, done, start, end)
		if !ok {
			continue
		}
		if done < start {
			dst = t.segment(dst, text[done:start], done == 0, s)
		}
		dst = append(dst, token.ID)
		done = max(done, end)
	}
}

// segment encodes what lies between two added tokens that are matched in the
// raw text.
func (t *Tokenizer) segment(dst []uint32, b []byte, atStart bool, s *scratch) []uint32 {
	b = t.norm.apply(b, s)
	if t.normalized == nil {
		return t.words(dst, b, atStart, s)
	}
	for done, i := 0, 0; ; {
		start, end, token := t.normalized.find(b, i)
		if token == nil {
			if done < len(b) {
				dst = t.words(dst, b[done:], atStart && done == 0, s)
			}
			return dst
		}
		i = end
		start, end, ok := token.span(b, done, start, end)
		if !ok {
			continue
		}
		if done < start {
			dst = t.words(dst, b[done:start], atStart && done == 0, s)
		}
		dst = append(dst, token.ID)
		done = max(done, end)
	}
}

// words pre-tokenizes normalized text without added tokens.
func (t *Tokenizer) words(dst []uint32, b []byte, atStart bool, s *scratch) []uint32 {
	if len(b) == 0 {
		return dst
	}
	b = t.pre.change(b, atStart, s)
	if len(t.pre.stages) > 0 {
		return t.split(dst, b, 0, len(b), 0, s)
	}
	if t.model.ignoreMerges {
		return t.word(dst, b, 0, len(b), s)
	}
	for i := 0; i < len(b); { // one word: go from seam to seam at once
		j := t.model.seams.end(b, i)
		dst = t.part(dst, b, i, j, s)
		i = j
	}
	return dst
}

// appendValid copies b with U+FFFD for every maximal part of a character that
// is not UTF-8 (Unicode 16, section 3.9, U+FFFD substitution).
func appendValid(dst, b []byte) []byte {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r != utf8.RuneError || n != 1 {
			dst = append(dst, b[:n]...)
			b = b[n:]
			continue
		}
		n = 1
		for n < min(len(b), utf8.UTFMax) && b[0] >= 0xC2 && b[0] <= 0xF4 && partOf(b[:n+1]) {
			n++
		}
		dst = append(dst, "\uFFFD"...)
		b = b[n:]
	}
	return dst
}

// partOf says whether b is the start of some character, but not all of it.
func partOf(b []byte) bool { return !utf8.FullRune(b) }

// keep bounds the scratch memory that stays with a Tokenizer between calls.
const keep = 1 << 20

func (s *scratch) shrink() {
	if cap(s.text)+cap(s.text2)+cap(s.spare)+cap(s.valid)+4*cap(s.runes)+4*cap(s.sym)+8*cap(s.val)+8*cap(s.heap) > keep {
		*s = scratch{merged: s.merged}
	}
}
