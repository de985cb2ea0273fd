package tokenbench

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Kinds are the kinds of text that a Corpus makes.
var Kinds = []string{"prose", "code", "json", "chinese", "unseen"}

// A Corpus generates texts, the same ones for the same seed as the benchmarks of
// package bpe: words of Zipf's frequencies in the shapes of prose, code, JSON and
// Chinese, and "unseen" text, whose words never come twice (hashes, base64, random
// identifiers).
type Corpus struct {
	r     *rand.Rand
	zipf  *rand.Zipf
	words []string
	han   []string
}

const (
	common = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were all her she there would their we him been has when who will no more if out so up said what its about than into them can only other time new some could these two may first then do any like my now over such our man me even most made after also did many off before must well back through years where much your way down should because long each just state people too mr little world good very make still see own work men get here between both life being under never day same another know while last might us great old year come since against go came right used take three"
	heads  = "th wh st tr pr con re in de ex com un dis per pro al be ca di en fi ge ha is la ma no or pa qu ra se ta up vi wa"
	mids   = "a e i o u ai ee ou ra re ri lo le la ti te ta si se sa nd nt st ct mp rm ll pp ss tt gh ck ng"
	tails  = "e s ing ed er ion ment ly al ous ive ness able ance ic ity ize ful less ent an on at is or ar el ow ea"
	hanzi  = "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切院让识候带导争运"
)

// NewCorpus makes a corpus of so many different words; 6,000 are about what a
// text of some megabytes has.
func NewCorpus(seed uint64, words int) *Corpus {
	r := rand.New(rand.NewPCG(seed, 1))
	c := &Corpus{r: r, zipf: rand.NewZipf(r, 1.07, 3, uint64(words-1)), words: strings.Fields(common), han: strings.Split(hanzi, "")}
	first, middle, last := strings.Fields(heads), strings.Fields(mids), strings.Fields(tails)
	seen := map[string]bool{}
	for _, w := range c.words {
		seen[w] = true
	}
	for len(c.words) < words {
		w := first[r.IntN(len(first))]
		for range 1 + r.IntN(2) {
			w += middle[r.IntN(len(middle))]
		}
		w += last[r.IntN(len(last))]
		if !seen[w] {
			seen[w] = true
			c.words = append(c.words, w)
		}
	}
	if words < 1000 {
		c.han = c.han[:110]
	}
	return c
}

func (c *Corpus) word() string { return c.words[c.zipf.Uint64()] }

// Text makes size bytes of text of one of Kinds. The last character may be cut.
func (c *Corpus) Text(kind string, size int) []byte {
	b := make([]byte, 0, size+512)
	for len(b) < size {
		switch kind {
		case "prose":
			b = c.sentence(b)
		case "code":
			b = c.statement(b)
		case "json":
			b = fmt.Appendf(b, `{"id": %d, "%s": "%s %s", "%s_%s": [%d, %d.%d, null], "ok": %v, "nested": {"%s": "%s"}},`+"\n", c.r.IntN(1e6), c.word(), c.word(), c.word(), c.word(),
				c.word(), c.r.IntN(100), c.r.IntN(10), c.r.IntN(100), c.r.IntN(2) == 0, c.word(), c.word())
		case "chinese":
			for range 4 + c.r.IntN(16) {
				b = append(b, c.han[int(c.zipf.Uint64())%len(c.han)]...)
			}
			b = append(b, []string{"，", "。", "、", "：", "；\n"}[c.r.IntN(5)]...)
		default:
			b = c.unseen(b)
		}
	}
	return b[:size]
}

func (c *Corpus) sentence(b []byte) []byte {
	n := 6 + c.r.IntN(18)
	for i := range n {
		w := c.word()
		if i == 0 {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		b = append(b, w...)
		switch {
		case i == n-1:
			b = append(b, ". "...)
		case c.r.IntN(9) == 0:
			b = append(b, ", "...)
		default:
			b = append(b, ' ')
		}
	}
	if c.r.IntN(6) == 0 {
		b = append(b, "\n\n"...)
	}
	return b
}

func (c *Corpus) statement(b []byte) []byte {
	indent := strings.Repeat("    ", 1+c.r.IntN(3))
	v, f := c.word(), c.word()
	switch c.r.IntN(4) {
	case 0:
		return fmt.Appendf(b, "%sif %s.%s(%s_%s, %d) != nil {\n%s    return %s\n%s}\n", indent, v, f, c.word(), c.word(), c.r.IntN(100), indent, c.word(), indent)
	case 1:
		return fmt.Appendf(b, "%sfor i := range %s {\n%s    self.%s[i] = get%s(%s)\n%s}\n", indent, v, indent, f, strings.ToUpper(c.word()), c.word(), indent)
	case 2:
		return fmt.Appendf(b, "\ndef %s_%s(self, %s: int = %d) -> None:\n%s\"\"\"%s %s %s.\"\"\"\n", v, f, c.word(), c.r.IntN(1000), indent, c.word(), c.word(), c.word())
	}
	return fmt.Appendf(b, "%svar %s = map[string]int{\"%s\": %d, \"%s\": %d} // %s %s\n", indent, v, f, c.r.IntN(10), c.word(), c.r.IntN(10), c.word(), c.word())
}

func (c *Corpus) unseen(b []byte) []byte {
	raw := make([]byte, 12+c.r.IntN(24))
	for i := range raw {
		raw[i] = byte(c.r.Uint32())
	}
	switch c.r.IntN(3) {
	case 0:
		b = append(b, hex.EncodeToString(raw)...)
	case 1:
		b = append(b, base64.StdEncoding.EncodeToString(raw)...)
	default:
		for _, x := range raw {
			b = append(b, 'a'+x%26)
		}
	}
	return append(b, ' ')
}
