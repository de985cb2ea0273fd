package trace

// A Writer makes prompts out of block ids: equal ids give equal text and equal
// tokens, so a replay shares prefixes exactly as the trace did. What it writes
// depends on nothing but its fields and the arguments. A Writer is a value
// without state and may be used by many goroutines.
type Writer struct {
	// BlockTokens is the tokens that one block id stands for (BlockSize in every
	// format, less in a scaled trace).
	BlockTokens int
	// PerWord is how many tokens of the target's tokenizer a word is, on
	// average. 0 means 1, which is right for English under the usual BPE
	// vocabularies and for Pseudo under the modelled engine. Measure it with the
	// target's /tokenize otherwise.
	PerWord float64
	// Word returns word n; nil means English.
	Word func(n uint64) string
	// Salt separates replays: another salt, other text, no sharing with a cache
	// that an earlier replay has filled.
	Salt uint64
}

// AppendText appends the text of a prompt of the given number of tokens: the
// words of its full blocks, then words of its own up to its length, drawn from
// own (the request's number). Every word has a space in front, so a block's text
// is tokenized alike wherever it stands.
func (w Writer) AppendText(dst []byte, blocks []uint64, tokens int, own uint64) []byte {
	word, per := w.Word, w.PerWord
	if word == nil {
		word = English
	}
	if per <= 0 {
		per = 1
	}
	words := 0
	put := func(state uint64, upTo int) {
		for ; words < upTo; words++ {
			dst = append(dst, ' ')
			dst = append(dst, word(next(&state))...)
		}
	}
	for i, b := range blocks {
		if (i+1)*w.BlockTokens > tokens {
			break
		}
		put(w.state(b, false), int(float64((i+1)*w.BlockTokens)/per))
	}
	put(w.state(own, true), int(float64(tokens)/per))
	return dst
}

// AppendTokens appends a prompt as token ids between low and high-1, exactly
// tokens of them.
func (w Writer) AppendTokens(dst []uint32, blocks []uint64, tokens int, own uint64, low, high uint32) []uint32 {
	span := uint64(max(high, low+1) - low)
	n := 0
	put := func(state uint64, upTo int) {
		for ; n < upTo; n++ {
			dst = append(dst, low+uint32(next(&state)%span))
		}
	}
	for i, b := range blocks {
		if (i+1)*w.BlockTokens > tokens {
			break
		}
		put(w.state(b, false), (i+1)*w.BlockTokens)
	}
	put(w.state(own, true), tokens)
	return dst
}

// state returns the generator's state for a block, or for a request's own tail.
func (w Writer) state(id uint64, tail bool) uint64 {
	s := id ^ w.Salt*0xd1342543de82ef95
	if tail {
		s ^= 0xa5a5a5a5a5a5a5a5
	}
	next(&s)
	return s
}

// next is splitmix64 (Steele, Lea and Flood 2014).
func next(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Pseudo returns one of 4,096 words of two syllables, each one token of the
// modelled engine's tokenizer (package mockserver).
func Pseudo(n uint64) string {
	const consonants, vowels = "bdfghjklmnprstvz", "aeio"
	b := [4]byte{consonants[n>>8&15], vowels[n>>6&3], consonants[n>>2&15], vowels[n&3]}
	return string(b[:])
}

// English returns a common English word of 1 to 7 letters. With a space in front
// each is one token in the vocabularies of GPT, Llama, Qwen and Mistral, as far
// as we know; measure before you rely on it.
func English(n uint64) string { return english[n%uint64(len(english))] }

var english = [...]string{
	"the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are", "as", "with",
	"his", "they", "at", "be", "this", "have", "from", "or", "one", "had", "by", "word", "but", "not", "what", "all",
	"were", "we", "when", "your", "can", "said", "there", "use", "an", "each", "which", "she", "do", "how", "their", "if",
	"will", "up", "other", "about", "out", "many", "then", "them", "these", "so", "some", "her", "would", "make", "like", "him",
	"into", "time", "has", "look", "two", "more", "write", "go", "see", "number", "no", "way", "could", "people", "my", "than",
	"first", "water", "been", "call", "who", "oil", "its", "now", "find", "long", "down", "day", "did", "get", "come", "made",
	"may", "part", "over", "new", "sound", "take", "only", "little", "work", "know", "place", "year", "live", "me", "back", "give",
	"most", "very", "after", "thing", "our", "just", "name", "good", "man", "think", "say", "great", "where", "help", "through", "much",
	"before", "line", "right", "too", "mean", "old", "any", "same", "tell", "boy", "follow", "came", "want", "show", "also", "around",
	"form", "three", "small", "set", "put", "end", "does", "another", "well", "large", "must", "big", "even", "such", "because", "turn",
	"here", "why", "ask", "went", "men", "read", "need", "land", "home", "us", "move", "try", "kind", "hand", "picture", "again",
	"change", "off", "play", "air", "away", "house", "point", "page", "letter", "mother", "answer", "found", "study", "still", "learn", "should",
	"world", "high", "every", "near", "add", "food", "between", "own", "below", "country", "plant", "last", "school", "father", "keep", "tree",
	"never", "start", "city", "earth", "eye", "light", "thought", "head", "under", "story", "saw", "left", "few", "while", "along", "might",
	"close", "next", "hard", "open", "example", "begin", "life", "always", "those", "both", "paper", "together", "got", "group", "often", "run",
	"until", "children", "side", "feet", "car", "mile", "night", "walk", "white", "sea", "began", "grow", "took", "river", "four", "carry",
}
