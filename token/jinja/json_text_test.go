package jinja

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// Texts of all lengths and escapes, read with memory that is used again and
// without, are what encoding/json makes of them; also after other texts were read
// by the same Parser.
func TestTexts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	spell := []string{"a", "bc", " ", `\n`, `\"`, `\\`, `\/`, `\b\f\r\t`, `\u00e9`, `\ud83d\ude00`, `\u0000`, "é", "你好", "😀", "\x7f", "plain text of some length", "12345678"}
	var again Parser
	again.ReuseTexts = true
	for round := range 400 {
		var b strings.Builder
		b.WriteByte('[')
		n := 1 + r.IntN(20)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('"')
			for range r.IntN(12) {
				b.WriteString(spell[r.IntN(len(spell))])
			}
			b.WriteByte('"')
		}
		b.WriteByte(']')
		var want []string
		if err := json.Unmarshal([]byte(b.String()), &want); err != nil {
			t.Fatal(err)
		}
		fresh, err := ParseJSON([]byte(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		reused, err := again.Parse(b.String())
		if err != nil {
			t.Fatal(err)
		}
		for range r.IntN(3) { // values of one text outlive the next, until Reset
			if _, err := again.Parse(`["x\ny", {"a\tb": "\u00e9` + strings.Repeat("z", r.IntN(2000)) + `"}]`); err != nil {
				t.Fatal(err)
			}
		}
		for _, v := range []Value{fresh, reused} {
			list, _ := v.AsList()
			for i := range want {
				if s, _ := list[i].AsString(); s != want[i] {
					t.Fatalf("round %d: %q, want %q, of %s", round, s, want[i], b.String())
				}
			}
		}
		again.Reset()
	}
}

// Broken texts are errors, whatever stands where the eight bytes end.
func TestBrokenTexts(t *testing.T) {
	for pad := range 20 {
		for _, bad := range []string{`"`, `"\`, `"\n`, `"\x"`, `"\u12`, `"\u12g4"`, "\"\n\"", "\"\\n\x01\"", `"\ud800"`, `"a\"`} {
			text := bad[:1] + strings.Repeat("p", pad) + bad[1:]
			if v, err := ParseJSON([]byte(text)); err == nil {
				t.Errorf("%q gives %v", text, v)
			}
		}
	}
}

// ensure_ascii escapes all but space to "~" (json.encoder.ESCAPE_ASCII), so U+007F too.
func TestASCIIEscapes(t *testing.T) {
	tpl, err := Compile(`{{ x|tojson(ensure_ascii=True) }} {{ x|tojson }}`)
	if err != nil {
		t.Fatal(err)
	}
	vars := NewDict(1)
	vars.Set("x", Str("~\x7f\u0080é😀"))
	got, err := tpl.Render(vars, Env{})
	if want := `"~\u007f\u0080\u00e9\ud83d\ude00" "~` + "\x7f\u0080é😀" + `"`; err != nil || got != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
}
