package mockserver

import (
	"strings"
)

// The built-in tokenizer. Ids, in order:
//
//	0..255      the byte of that value
//	256..4351   the 4,096 words of two syllables, in the order of their syllables
//	4352..8447  the same words with a space in front
//	8448..8450  <|im_start|>, <|im_end|>, <|endoftext|>
//
// A syllable is one of the 16 consonants bdfghjklmnprstvz and one of the vowels
// a, e, i, o; the words are "baba" to "zozo". Text is read from
// the left: a special token if one begins here, else a word with a space in
// front, else a word, else one byte. So every text has exactly one encoding,
// decoding gives it back byte for byte, and cutting a text never changes the ids
// before the last word.
const (
	consonants = "bdfghjklmnprstvz"
	vowels     = "aeio"

	firstWord    = 256
	numWords     = 64 * 64
	firstSpaced  = firstWord + numWords
	firstSpecial = firstSpaced + numWords
	vocabulary   = firstSpecial + 3
)

var specials = [...]string{"<|im_start|>", "<|im_end|>", "<|endoftext|>"}

// Word returns the n-th word of the vocabulary: one token, with or without a
// space in front. Workloads made of words have as many tokens as words.
func Word(n int) string {
	n &= numWords - 1
	return syllable(n>>6) + syllable(n&63)
}

func syllable(n int) string { return consonants[n>>2:n>>2+1] + vowels[n&3:n&3+1] }

var syllableAt = func() (t [256][256]int8) {
	for i := range t {
		for j := range t[i] {
			t[i][j] = -1
		}
	}
	for n := range 64 {
		s := syllable(n)
		t[s[0]][s[1]] = int8(n)
	}
	return t
}()

// wordAt returns the word that begins s, or -1.
func wordAt(s string) int {
	if len(s) < 4 {
		return -1
	}
	a, b := syllableAt[s[0]][s[1]], syllableAt[s[2]][s[3]]
	if a < 0 || b < 0 {
		return -1
	}
	return int(a)<<6 | int(b)
}

// encode appends the ids of text to dst. Special tokens are read as such
// anywhere, as vLLM's tokenizers do.
func encode(dst []uint32, text string) []uint32 {
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case rest[0] == '<' && special(rest) >= 0:
			n := special(rest)
			dst = append(dst, uint32(firstSpecial+n))
			i += len(specials[n])
		case rest[0] == ' ' && wordAt(rest[1:]) >= 0:
			dst = append(dst, uint32(firstSpaced+wordAt(rest[1:])))
			i += 5
		case wordAt(rest) >= 0:
			dst = append(dst, uint32(firstWord+wordAt(rest)))
			i += 4
		default:
			dst = append(dst, uint32(rest[0]))
			i++
		}
	}
	return dst
}

func special(s string) int {
	for n, x := range specials {
		if strings.HasPrefix(s, x) {
			return n
		}
	}
	return -1
}

// decode appends the text of ids to dst. Ids outside of the vocabulary are
// nothing, as in vLLM's /detokenize.
func decode(dst []byte, ids []uint32) []byte {
	for _, id := range ids {
		switch {
		case id < firstWord:
			dst = append(dst, byte(id))
		case id < firstSpaced:
			dst = append(dst, Word(int(id-firstWord))...)
		case id < firstSpecial:
			dst = append(dst, ' ')
			dst = append(dst, Word(int(id-firstSpaced))...)
		case id < vocabulary:
			dst = append(dst, specials[id-firstSpecial]...)
		}
	}
	return dst
}

// outputToken is the i-th token of the answer with this seed: a word with a
// space in front.
func outputToken(seed uint64, i int) uint32 {
	x := (seed ^ uint64(i)*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	x ^= x >> 29
	return uint32(firstSpaced + (x*0x94d049bb133111eb)>>52)
}

// render writes messages in the built-in chat template (ChatML), with the tools'
// JSON in front.
func render(messages []message, tools string, generationPrompt bool) string {
	var b strings.Builder
	if tools != "" {
		b.WriteString("<|im_start|>tools\n" + tools + "<|im_end|>\n")
	}
	for _, m := range messages {
		b.WriteString("<|im_start|>" + m.Role + "\n" + m.text)
		if m.calls != "" {
			b.WriteString("\n" + m.calls)
		}
		b.WriteString("<|im_end|>\n")
	}
	if generationPrompt {
		b.WriteString("<|im_start|>assistant\n")
	}
	return b.String()
}
