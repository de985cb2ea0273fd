package bpe

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCutBefore cuts texts where CutBefore says so, with what follows at
// replaced by something else, and compares with the encoding of the whole.
func TestCutBefore(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			k := load(t, family)
			rows := fixtures(t, family)
			r := rand.New(rand.NewPCG(5, 5))
			var glue []string
			for _, a := range k.added[:min(len(k.added), 40)] {
				glue = append(glue, a.Content)
			}
			glue = append(glue, "", " ", "\n", "\n\n", " \n", "/", "'s", "\u0301", "\u200d", "\xe4\xb8", "1", "a", "▁", "\r")
			cut, bytes := 0, 0
			for range 3000 {
				var text []byte
				for range r.IntN(14) { // small things side by side
					text = append(text, glue[r.IntN(len(glue))]...)
					if r.IntN(2) == 0 {
						text = append(text, alphabet[r.IntN(len(alphabet))]...)
					}
				}
				for range r.IntN(3) { // and real text
					x := rows[r.IntN(len(rows))].Text
					if len(x) > 400 {
						at := r.IntN(len(x) - 300)
						x = x[at : at+300]
					}
					text = append(append(text, x...), glue[r.IntN(len(glue))]...)
				}
				at := r.IntN(len(text) + 1)
				c := k.CutBefore(text, at)
				if c < 0 || c > at {
					t.Fatalf("CutBefore(%d) = %d", at, c)
				}
				y := rows[r.IntN(len(rows))].Text
				whole := append(append(append([]byte(nil), text[:at]...), glue[r.IntN(len(glue))]...), y[:min(len(y), 200)]...)
				want := k.Encode(nil, whole, false)
				got := k.Encode(k.Encode(nil, whole[:c], false), whole[c:], false)
				if !slices.Equal(got, want) {
					t.Fatalf("cut at %d of %q (at %d): %v, want %v", c, whole, at, got, want)
				}
				if c > 0 {
					cut++
					bytes += at - c
				}
			}
			t.Logf("%s: %d of 3000 cut, %d bytes back on average", family, cut, bytes/max(cut, 1))
			if cut < 1000 {
				t.Errorf("only %d of 3000 texts could be cut", cut)
			}
		})
	}
}
