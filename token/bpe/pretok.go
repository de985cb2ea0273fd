package bpe

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// A stage splits what the stage before it left. Pieces never change the text;
// what pre-tokenizers change (a space in front, U+2581 for spaces) is done
// once, before the first stage.
type stage struct {
	kind    stageKind
	scan    scanner
	text    []byte // splitText
	join    behavior
	inverse bool // the stretches between matches are the matches
}

type stageKind uint8

const (
	splitScan        stageKind = iota // by a known expression
	splitText                         // by a fixed string
	splitDigits                       // Digits, all of a run together
	splitDigit                        // Digits, each by itself
	splitPunctuation                  // Punctuation
)

type behavior uint8

const (
	isolated behavior = iota
	removed
	withPrevious
	withNext
	contiguous
)

var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": removed, "MergedWithPrevious": withPrevious, "MergedWithNext": withNext, "Contiguous": contiguous,
}

// A pretokenizer is the change to the text and then the stages.
type pretokenizer struct {
	stages []stage
	space  bool // ByteLevel: a space in front of a segment that does not start with one
	meta   *metaspace
}

// metaspace is what Metaspace does to the text: its replacement for each
// space, and one in front if none is there.
type metaspace struct {
	replacement []byte
	always      bool
	first       bool // only at the start of the text
}

func newPretokenizer(file string, c *component) (*pretokenizer, error) {
	p := &pretokenizer{}
	if c == nil {
		return p, nil
	}
	list, path := []component{*c}, "pre_tokenizer"
	if c.Type == "Sequence" {
		list, path = c.Pretokenizers, path+".pretokenizers"
	}
	if isDeepSeek(list) {
		p.stages = append(p.stages, stage{scan: scanner{kind: scanDeepSeek, digits: 3}})
		list = list[3:]
	}
	for i := range list {
		at := path
		if c.Type == "Sequence" {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		if err := p.add(file, at, &list[i], i == 0, i == len(list)-1); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func isDeepSeek(list []component) bool {
	if len(list) < 3 {
		return false
	}
	for i, re := range []string{reDeepSeek1, reDeepSeek2, reDeepSeek3} {
		c := &list[i]
		if c.Type != "Split" || c.Pattern == nil || c.Pattern.Regex == nil || *c.Pattern.Regex != re || c.Behavior != "Isolated" || c.Invert {
			return false
		}
	}
	return true
}

func (p *pretokenizer) add(file, at string, c *component, first, last bool) error {
	no := func(field, value string) error { return &Unsupported{file, at + field, value} }
	join, known := behaviors[c.Behavior]
	switch c.Type {
	case "Split":
		switch {
		case !known:
			return no(".behavior", fmt.Sprintf("%q", c.Behavior))
		case c.Pattern == nil || (c.Pattern.Regex == nil) == (c.Pattern.String == nil):
			return &BadFile{file, at + ".pattern", fmt.Errorf("want one of Regex and String")}
		case c.Pattern.String != nil:
			if *c.Pattern.String == "" {
				return no(".pattern.String", `""`)
			}
			p.stages = append(p.stages, stage{kind: splitText, text: []byte(*c.Pattern.String), join: join, inverse: c.Invert})
			return nil
		}
		scan, ok := patterns[*c.Pattern.Regex]
		if !ok {
			return no(".pattern.Regex", fmt.Sprintf("%q", *c.Pattern.Regex))
		}
		p.stages = append(p.stages, stage{scan: scan, join: join, inverse: c.Invert})
	case "ByteLevel":
		if !last { // what follows would see bytes spelled as characters
			return no(".type", "ByteLevel before another pre-tokenizer")
		}
		if c.AddPrefixSpace == nil || *c.AddPrefixSpace {
			if !first {
				return no(".add_prefix_space", "true behind another pre-tokenizer")
			}
			p.space = true
		}
		if c.UseRegex == nil || *c.UseRegex {
			p.stages = append(p.stages, stage{scan: scanner{kind: scanGPT2}})
		}
	case "Digits":
		s := stage{kind: splitDigits}
		if c.IndividualDigits {
			s.kind = splitDigit
		}
		p.stages = append(p.stages, s)
	case "Punctuation":
		if !known && c.Behavior != "" {
			return no(".behavior", fmt.Sprintf("%q", c.Behavior))
		}
		p.stages = append(p.stages, stage{kind: splitPunctuation, join: join})
	case "Metaspace":
		return p.metaspace(c, first, no)
	default:
		return no(".type", fmt.Sprintf("%q", c.Type))
	}
	return nil
}

func (p *pretokenizer) metaspace(c *component, first bool, no func(field, value string) error) error {
	scheme := c.PrependScheme
	if scheme == "" {
		scheme = "always"
		if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
			scheme = "never"
		}
	}
	switch {
	case !first:
		return no(".type", "Metaspace behind another pre-tokenizer")
	case utf8.RuneCountInString(c.Replacement) != 1:
		return no(".replacement", fmt.Sprintf("%q", c.Replacement))
	case scheme != "always" && scheme != "first" && scheme != "never":
		return no(".prepend_scheme", fmt.Sprintf("%q", scheme))
	}
	p.meta = &metaspace{[]byte(c.Replacement), scheme == "always", scheme == "first"}
	if c.Split == nil || *c.Split {
		p.stages = append(p.stages, stage{kind: splitText, text: p.meta.replacement, join: withNext})
	}
	return nil
}

// change applies the change of text to one segment. atStart says that the
// segment begins the text. The result is b itself or lies in s.spare.
func (p *pretokenizer) change(b []byte, atStart bool, s *scratch) []byte {
	switch {
	case p.space:
		if b[0] == ' ' {
			return b
		}
		s.spare = append(append(s.spare[:0], ' '), b...)
		return s.spare
	case p.meta != nil:
		out := s.spare[:0]
		if (p.meta.always || p.meta.first && atStart) && b[0] != ' ' && !bytes.HasPrefix(b, p.meta.replacement) {
			out = append(out, p.meta.replacement...)
		}
		s.spare = appendReplaced(out, b, []byte{' '}, p.meta.replacement)
		return s.spare
	}
	return b
}

func appendReplaced(dst, b, old, by []byte) []byte {
	for {
		i := bytes.Index(b, old)
		if i < 0 {
			return append(dst, b...)
		}
		dst = append(append(dst, b[:i]...), by...)
		b = b[i+len(old):]
	}
}

// raw returns the end of the match at i, or of the stretch up to the next one.
func (g *stage) raw(b []byte, i int) (end int, match bool) {
	var test func(c byte, k class) bool
	switch g.kind {
	case splitScan:
		return g.scan.next(b, i)
	case splitText:
		switch k := bytes.Index(b[i:], g.text); {
		case k == 0:
			return i + len(g.text), true
		case k > 0:
			return i + k, false
		}
		return len(b), false
	case splitDigits, splitDigit:
		test = func(_ byte, k class) bool { return in(k, setN) }
	case splitPunctuation:
		test = func(c byte, k class) bool { return in(k, setP) || c < utf8.RuneSelf && in(k, setS) }
	}
	for j := i; j < len(b); {
		c, n := at(b, j)
		is := test(b[j], c)
		switch {
		case j == i:
			match = is
			if j += n; match && g.kind != splitDigits {
				return j, true
			}
			continue
		case is != match:
			return j, match
		}
		j += n
	}
	return len(b), match
}

// next returns the next piece of b at or behind i: start and end, start ==
// len(b) if there is none.
func (g *stage) next(b []byte, i int) (start, end int) {
	for i < len(b) {
		end, match := g.raw(b, i)
		if match = match != g.inverse; g.join == isolated {
			return i, end
		}
		switch {
		case g.join == removed && match:
			i = end
			continue
		case g.join == withPrevious && !match, g.join == withNext && match, g.join == contiguous:
			for end < len(b) {
				e, m := g.raw(b, end)
				m = m != g.inverse
				if g.join == contiguous && m != match || g.join == withNext && m || g.join == withPrevious && !m {
					break
				}
				end = e
				if g.join != contiguous {
					break
				}
			}
		}
		return i, end
	}
	return len(b), len(b)
}

// split passes b[lo:hi] through the stages from k on and appends the ids.
func (t *Tokenizer) split(dst []uint32, b []byte, lo, hi, k int, s *scratch) []uint32 {
	if k == len(t.pre.stages) {
		return t.word(dst, b, lo, hi, s)
	}
	g := &t.pre.stages[k]
	sub := b[lo:hi]
	if k == len(t.pre.stages)-1 && g.kind == splitScan && g.join == isolated {
		return t.scan(dst, sub, &g.scan, s)
	}
	for i := 0; i < len(sub); {
		start, end := g.next(sub, i)
		if start < end {
			dst = t.split(dst, b, lo+start, lo+end, k+1, s)
		}
		i = end
	}
	return dst
}

// scan is the last stage of nearly every model: one loop per expression, with
// its short cuts in front.
func (t *Tokenizer) scan(dst []uint32, b []byte, p *scanner, s *scratch) []uint32 {
	switch p.kind {
	case scanWords:
		for i := 0; i < len(b); {
			e := letterWord(b, i)
			if e == i {
				if e = p.asciiWord(b, i); e == i {
					e = p.words(b, i)
				}
			}
			dst = t.word(dst, b, i, e, s)
			i = e
		}
	case scanCases:
		for i := 0; i < len(b); {
			e := caseWord(b, i)
			if e == i {
				if e = p.asciiWord(b, i); e == i {
					e = p.cases(b, i)
				}
			}
			dst = t.word(dst, b, i, e, s)
			i = e
		}
	case scanDeepSeek:
		for i := 0; i < len(b); {
			e := letterWord(b, i)
			if e == i {
				if e = p.asciiWord(b, i); e == i {
					e = deepSeek(b, i)
				}
			}
			dst = t.word(dst, b, i, e, s)
			i = e
		}
	default:
		for i := 0; i < len(b); {
			e, _ := p.next(b, i)
			dst = t.word(dst, b, i, e, s)
			i = e
		}
	}
	return dst
}
