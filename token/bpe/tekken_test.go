package bpe

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// smallTekken spells a tekken.json of all bytes and a few tokens.
func smallTekken(special string, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"config":{"pattern":%q,"default_vocab_size":%d,"default_num_special_tokens":10}%s,"vocab":[`, reTekken, 10+256+len(more), special)
	for i := range 256 + len(more) {
		token := string([]byte{byte(i)})
		if i >= 256 {
			token = more[i-256]
		}
		fmt.Fprintf(&b, `{"rank":%d,"token_bytes":%q,"token_str":null},`, i, base64.StdEncoding.EncodeToString([]byte(token)))
	}
	return b.String() + fmt.Sprintf(`{"rank":%d,"token_bytes":"eHg=","token_str":"cut off"}]}`, 256+len(more))
}

// TestTekken: ids start behind the control tokens, which a text never gives;
// entries beyond the size are cut off; a whole word that is a token is taken
// even where merges do not lead to it.
func TestTekken(t *testing.T) {
	k, err := NewTekken([]byte(smallTekken(`,"special_tokens":[{"rank":1,"token_str":"<s>","is_control":true},{"rank":7,"token_str":"[THINK]"}]`, "ab", "bc", "abc", "qwerty")))
	if err != nil {
		t.Fatal(err)
	}
	const first, ab, c, abc, qwerty = 10, 266, 10 + 'c', 268, 269
	for text, want := range map[string][]uint32{
		"ab":      {ab},
		"abc":     {abc},
		"1abc":    {first + '1', abc},
		"qwerty":  {qwerty},
		"qwertyc": {first + 'q', first + 'w', first + 'e', first + 'r', first + 't', first + 'y', c},
		"[THINK]": {first + '[', first + 'T', first + 'H', first + 'I', first + 'N', first + 'K', first + ']'},
		"x":       {first + 'x'},
		"xx":      {first + 'x', first + 'x'},
		"":        {},
	} {
		if got := k.EncodeString(nil, text, false); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		if got := k.EncodeString(nil, text, true); !slices.Equal(got, append([]uint32{1}, want...)) {
			t.Errorf("%q with <s>: %v", text, got)
		}
	}
	if id, ok := k.AddedID("[THINK]"); !ok || id != 7 || k.VocabSize() != 270 {
		t.Error(id, ok, k.VocabSize())
	}
	if old, err := NewTekken([]byte(smallTekken(""))); err != nil {
		t.Error(err)
	} else if id, _ := old.AddedID("[INST]"); id != 3 {
		t.Error("[INST] has id", id)
	}
	for bad, want := range map[string]string{
		strings.Replace(smallTekken(""), `\\p{N}`, `\\d`, 1):                             "config.pattern",
		strings.Replace(smallTekken(""), `"rank":7,`, `"rank":8,`, 1):                    "entry 7 has rank 8",
		strings.Replace(smallTekken(""), `"token_bytes":"CQ=="`, `"token_bytes":"!"`, 1): "entry 9",
		smallTekken(`,"special_tokens":[{"rank":12,"token_str":"x"}]`):                   "want 0 to 9",
		smallTekken(`,"special_tokens":[{"rank":2,"token_str":"x"}]`):                    "no <s>",
		`{"config":{},"vocab":[]}`:                                                       "default_vocab_size 0",
	} {
		if _, err := NewTekken([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
