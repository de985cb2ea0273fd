package bpe

import (
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// alphabet holds what the expressions tell apart: every class, the characters
// they name, and the neighbours of their ranges.
var alphabet = strings.Split("a b s t r e v m d l S T R E V L z A Z é É ß ǅ ʰ ª 中 龥 龦 ぁ ゟ ゠ ・ ヿ ㆀ 가 א \u0301 \u0903 \u3099 ा 1 2 3 ٣ ² Ⅳ ½ . , ' ' \" / / - _ ( $ + ^ ` | ~ € 、 ｜ ▁ ſ \u200d \u0000 \u007f \u00ad \ufffd \U0010ffff \U0001F600", " ")

var blanks = []string{" ", " ", " ", "\n", "\n", "\r", "\t", "\u00a0", "\u3000", "\u0085", "\u2028", "\v"}

func randomText(r *rand.Rand, n int) []byte {
	var b []byte
	for range n {
		from := alphabet
		if r.IntN(3) == 0 {
			from = blanks
		}
		x := from[r.IntN(len(from))]
		for range 1 + r.IntN(4)*r.IntN(2) {
			b = append(b, x...)
		}
	}
	return b
}

// oracle is the reference of a scanner: one expression after the other.
func oracle(t testing.TB, res ...string) func(b []byte) []int {
	var nodes []node
	for _, re := range res {
		n, err := compile(re)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	return func(b []byte) []int {
		ends := []int{len(b)}
		for _, n := range nodes {
			var out []int
			from := 0
			for _, end := range ends {
				for _, e := range n.pieces(b[from:end]) {
					out = append(out, from+e)
				}
				from = end
			}
			ends = out
		}
		return ends
	}
}

// scanEnds splits b with a scanner, and with its short cuts where scan uses them.
func scanEnds(t testing.TB, p *scanner, b []byte) (ends []int) {
	for i := 0; i < len(b); {
		e, _ := p.next(b, i)
		if e <= i || e > len(b) {
			t.Fatalf("no progress at %d of %q", i, b)
		}
		fast := i
		switch p.kind {
		case scanWords, scanDeepSeek:
			if fast = letterWord(b, i); fast == i {
				fast = p.asciiWord(b, i)
			}
		case scanCases:
			if fast = caseWord(b, i); fast == i {
				fast = p.asciiWord(b, i)
			}
		}
		if fast != i && fast != e {
			t.Fatalf("%q at %d: the short cut ends at %d, the scanner at %d", b, i, fast, e)
		}
		ends = append(ends, e)
		i = e
	}
	return ends
}

func TestScanners(t *testing.T) {
	initClasses()
	type pair struct {
		p    scanner
		want func([]byte) []int
		name string
	}
	var all []pair
	for re, p := range patterns {
		all = append(all, pair{p, oracle(t, re), re})
	}
	all = append(all, pair{scanner{kind: scanDeepSeek, digits: 3}, oracle(t, reDeepSeek1, reDeepSeek2, reDeepSeek3), "deepseek"})
	for _, x := range all {
		r := rand.New(rand.NewPCG(1, 2))
		for range 6000 {
			b := randomText(r, 1+r.IntN(24))
			if got, want := scanEnds(t, &x.p, b), x.want(b); !slices.Equal(got, want) {
				t.Fatalf("%s\n%q: ends %v, want %v", x.name, b, got, want)
			}
		}
	}
}

// FuzzScanners looks for texts on which a scanner and its expression part.
func FuzzScanners(f *testing.F) {
	initClasses()
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(string(randomText(r, 12)))
	}
	type pair struct {
		p    scanner
		want func([]byte) []int
	}
	var all []pair
	for re, p := range patterns {
		all = append(all, pair{p, oracle(f, re)})
	}
	all = append(all, pair{scanner{kind: scanDeepSeek, digits: 3}, oracle(f, reDeepSeek1, reDeepSeek2, reDeepSeek3)})
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2000 { // the interpreter recurses
			return
		}
		b := appendValid(nil, []byte(text))
		for _, x := range all {
			if got, want := scanEnds(t, &x.p, b), x.want(b); !slices.Equal(got, want) {
				t.Fatalf("%q: ends %v, want %v", b, got, want)
			}
		}
	})
}

// TestClasses holds the tables against the file they were made from.
func TestClasses(t *testing.T) {
	initClasses()
	f, err := os.Open("gen/unicode_classes.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var in struct{ Classes map[string][][2]rune }
	if err := json.NewDecoder(z).Decode(&in); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]set{"L": setL, "N": setN, "Nd": setNd, "M": setM, "P": setP, "S": setS, "s": setSpace, "Lu": setLu, "Ll": setLl, "Lt": setLt, "Lm": setLm, "Lo": setLo} {
		want := make([]bool, 0x110000)
		for _, r := range in.Classes[name] {
			for c := r[0]; c <= r[1]; c++ {
				want[c] = true
			}
		}
		for c := range rune(0x110000) {
			if got := runeClass(c)&classOf != 0 && s>>(runeClass(c)&classOf)&1 != 0; got != want[c] {
				t.Fatalf("%s of U+%04X is %v, want %v", name, c, got, want[c])
			}
		}
	}
}

// TestHanLead proves what isHanLead says of its range.
func TestHanLead(t *testing.T) {
	initClasses()
	for r := rune(0x5000); r <= 0x8FFF; r++ {
		if s := string(r); !isHanLead(s[0]) || len(s) != 3 || runeClass(r) != classLo {
			t.Fatalf("U+%04X", r)
		}
	}
	if s := string(rune(0x4FFF)) + string(rune(0x9000)); isHanLead(s[0]) || isHanLead(s[3]) {
		t.Fatal("the neighbours are not in the range")
	}
}
