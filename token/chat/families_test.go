package chat

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/token/bpe"
	"kvasir/token/jinja"
)

var frozen = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// fixtures gives the folder of the golden files: $KVASIR_SHARED, or shared beside the repository.
// On a machine without it the tests that need it are skipped; in CI they fail if it is there and broken.
func fixtures(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("KVASIR_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	dir = filepath.Join(dir, "fixtures", "tokenizers")
	if _, err := os.Stat(filepath.Join(dir, "sources.json")); err != nil {
		t.Skipf("no fixtures in %s (KVASIR_SHARED): prompts of real templates are not checked", dir)
	}
	return dir
}

// cacheDir is where fetched packages are kept.
func cacheDir() string {
	if d := os.Getenv("KVASIR_CACHE"); d != "" {
		return d
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".cache", "kvasir")
}

func lines(t testing.TB, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

type sources struct {
	Tokenizers map[string]struct {
		ChatTemplate struct {
			In string `json:"in"`
		} `json:"chat_template"`
	} `json:"tokenizers"`
	TemplateSources struct {
		Templates map[string]struct {
			File string `json:"file"`
		} `json:"templates"`
	} `json:"template_sources"`
	Families map[string]struct {
		Special map[string]*string `json:"special_tokens"`
		Format  string             `json:"content_format"`
		Sha256  string             `json:"template_sha256"`
	} `json:"chat_families"`
}

func readSources(t testing.TB, dir string) (s sources) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "sources.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// familyTemplate finds a family's template by its sha256: among the fixtures, or where fetched
// packages were put. "" when it was not fetched.
func familyTemplate(t testing.TB, dir, family string, s *sources) string {
	t.Helper()
	check := func(text []byte) bool {
		sum := sha256.Sum256(text)
		return hex.EncodeToString(sum[:]) == s.Families[family].Sha256
	}
	for _, path := range []string{
		filepath.Join(dir, "templates", family+".jinja"),
		filepath.Join(cacheDir(), "templates", s.TemplateSources.Templates[family].File),
	} {
		if text, err := os.ReadFile(path); err == nil && check(text) {
			return string(text)
		}
	}
	data, err := os.ReadFile(filepath.Join(cacheDir(), "tokenizers", family, "tokenizer_config.json"))
	if err != nil {
		return ""
	}
	var cfg struct {
		Template any `json:"chat_template"`
	}
	if json.Unmarshal(data, &cfg) != nil {
		return ""
	}
	if text, ok := cfg.Template.(string); ok && check([]byte(text)) {
		return text
	}
	return ""
}

type goldenCase struct {
	name     string
	body     []byte
	rendered string
	has      bool // rendered is given
	ids      []uint32
	stage    string
	message  string
	row      *jinja.Dict
}

// golden reads the cases of a family. The body is the request as our own serialiser writes it, which
// keeps its keys in order and its numbers as Python spells them.
func golden(t testing.TB, dir, family string) []goldenCase {
	t.Helper()
	var out []goldenCase
	for _, line := range lines(t, filepath.Join(dir, "chat", family+".jsonl.gz")) {
		v, err := jinja.ParseJSON(line)
		if err != nil {
			t.Fatal(err)
		}
		row, _ := v.AsDict()
		c := goldenCase{row: row}
		c.name, _ = row.Get("name").AsString()
		if c.body, err = jinja.AppendJSON(nil, row.Get("request")); err != nil {
			t.Fatal(err)
		}
		c.rendered, c.has = row.Get("rendered").AsString()
		ids, _ := row.Get("ids").AsList()
		for _, id := range ids {
			n, _ := id.AsInt()
			c.ids = append(c.ids, uint32(n))
		}
		if e, ok := row.Get("error").AsDict(); ok {
			c.stage, _ = e.Get("stage").AsString()
			c.message, _ = e.Get("message").AsString()
		}
		out = append(out, c)
	}
	return out
}

func specialTokens(s *sources, family string) *jinja.Dict {
	d := jinja.NewDict(8)
	for _, k := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		if v := s.Families[family].Special[k]; v != nil {
			d.Set(k, jinja.Str(*v))
		}
	}
	for k, v := range s.Families[family].Special {
		if v != nil && d.Get(k).IsMissing() {
			d.Set(k, jinja.Str(*v))
		}
	}
	return d
}

func asJSON(v jinja.Value) string {
	b, err := jinja.AppendJSON(nil, v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestFamilies renders every case of every family that has a template: text, refusal, content format,
// and the variables that vLLM hands to the template.
func TestFamilies(t *testing.T) {
	dir := fixtures(t)
	src := readSources(t, dir)
	for family, f := range src.Families {
		if f.Sha256 == "" {
			continue
		}
		t.Run(family, func(t *testing.T) {
			text := familyTemplate(t, dir, family, &src)
			if text == "" {
				if os.Getenv("CI") == "true" {
					t.Fatalf("the template of %s is not there: go run ./token/chat/fetch, or ./token/bpe/fetch", family)
				}
				t.Skipf("the template of %s is not there: go run ./token/chat/fetch, or ./token/bpe/fetch", family)
			}
			tpl, err := jinja.Compile(text)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := tpl.ContentFormat(); !ok || got.String() != f.Format {
				t.Errorf("content format %s %v, want %s", got, ok, f.Format)
			}
			r, err := New(Config{Template: tpl, SpecialTokens: specialTokens(&src, family), Now: func() time.Time { return frozen }})
			if err != nil {
				t.Fatal(err)
			}
			exact := 0
			cases := golden(t, dir, family)
			for _, c := range cases {
				if checkCase(t, r, c) {
					exact++
				}
				checkVariables(t, r, c)
			}
			t.Logf("%s %d/%d", family, exact, len(cases))
			checkIDs(t, r, family, cases)
		})
	}
}

// TestHarmony renders every case of gpt-oss in code, as vLLM before 0.31 does.
func TestHarmony(t *testing.T) {
	codeFamily(t, "gptoss_harmony", Config{Kind: KindHarmony, Harmony: OpenAIHarmony})
}

// TestOSSHarmony does so as vLLM 0.31 and later do, which is the default. The cases were made with
// oss-harmony 0.0.11 and are here, so that they are always checked.
func TestOSSHarmony(t *testing.T) {
	r, err := New(Config{Kind: KindHarmony, Now: func() time.Time { return frozen }})
	if err != nil {
		t.Fatal(err)
	}
	exact, tools := 0, 0
	cases := golden(t, "testdata", "../gptoss_oss_harmony")
	for _, c := range cases {
		if checkCase(t, r, c) {
			exact++
		}
		if strings.Contains(c.rendered, "<|channel|>commentary to=assistant<|message|>") {
			tools++
		}
	}
	if exact < 60 || tools < 10 {
		t.Errorf("%d cases are exact, %d have a tool's result: want at least 60 and 10", exact, tools)
	}
	checkIDs(t, r, "gptoss_harmony", cases)
}

// TestTekken does so for Mistral's, TestDeepSeekV4 for DeepSeek's.
func TestTekken(t *testing.T)     { codeFamily(t, "mistral_tekken", Config{Kind: KindTekken}) }
func TestDeepSeekV4(t *testing.T) { codeFamily(t, "deepseek_v4", Config{Kind: KindDeepSeekV4}) }

func codeFamily(t *testing.T, family string, cfg Config) {
	dir := fixtures(t)
	cfg.TekkenVersion, cfg.Now = 3, func() time.Time { return frozen }
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	exact := 0
	cases := golden(t, dir, family)
	for _, c := range cases {
		if checkCase(t, r, c) {
			exact++
		}
	}
	t.Logf("%s %d/%d", family, exact, len(cases))
	checkIDs(t, r, family, cases)
}

// idFamilies are those whose tokenizer can be had; llama3_1 has that of 3.2.
var idFamilies = map[string]string{
	"qwen3": "qwen3", "qwen2_5": "qwen2_5", "llama3": "llama3", "llama3_1": "llama3_2", "llama3_2": "llama3_2",
	"gemma3": "gemma3", "deepseek_v3": "deepseek_v3", "deepseek_v4": "deepseek_v4", "mistral_nemo": "mistral_nemo",
	"gptoss": "gptoss", "gptoss_harmony": "gptoss", "mistral_tekken": "mistral_tekken",
}

// checkIDs goes all the way: body to token ids, as the engine computes them.
func checkIDs(t *testing.T, r *Renderer, family string, cases []goldenCase) {
	t.Helper()
	name := idFamilies[family]
	if name == "" {
		return
	}
	tok, err := bpe.Load(filepath.Join(cacheDir(), "tokenizers", name))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the tokenizer of %s: %v", family, err)
		}
		t.Logf("%s: ids are not checked: %v", family, err)
		return
	}
	exact, all := 0, 0
	for _, c := range cases {
		if c.ids == nil {
			continue
		}
		all++
		p, err := r.Chat(c.body)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		ids, err := p.Encode(nil, tok)
		if err != nil || !slices.Equal(ids, c.ids) {
			t.Errorf("%s: ids\n got %v %v\nwant %v", c.name, ids, err, c.ids)
			continue
		}
		exact++
	}
	t.Logf("%s ids %d/%d", family, exact, all)
}

func checkCase(t *testing.T, r *Renderer, c goldenCase) bool {
	t.Helper()
	p, err := r.Chat(c.body)
	if c.stage != "" {
		var ref *Refused
		e, _ := c.row.Get("error").AsDict()
		class, _ := e.Get("type").AsString()
		if class == "ValidationError" {
			// pydantic's words and moment: not ours to repeat
			var rem *NeedsRemote
			if !errors.As(err, &ref) && !errors.As(err, &rem) {
				t.Errorf("%s: got %q, %v; want no prompt", c.name, p.Text, err)
				return false
			}
			return true
		}
		if !errors.As(err, &ref) || ref.Stage != c.stage {
			t.Errorf("%s: got %q, %v; want a refusal at stage %s: %s", c.name, p.Text, err, c.stage, c.message)
			return false
		}
		// what the template or transformers says, we say in the same words
		if c.stage == "render" && !strings.HasPrefix(c.message, ref.Reason) {
			t.Errorf("%s: refused with %q, want %q", c.name, ref.Reason, c.message)
			return false
		}
		return true
	}
	if err != nil {
		t.Errorf("%s: %v\nwant %q", c.name, err, c.rendered)
		return false
	}
	if c.has && p.Text != c.rendered {
		t.Errorf("%s:\n got %q\nwant %q", c.name, p.Text, c.rendered)
		return false
	}
	return true
}

// checkVariables compares what the template is given.
func checkVariables(t *testing.T, r *Renderer, c goldenCase) {
	t.Helper()
	if c.row.Get("conversation").Kind() != jinja.KindList {
		return
	}
	req := newRequest()
	if err := req.parse(c.body); err != nil {
		t.Errorf("%s: %v", c.name, err)
		return
	}
	conv, err := req.conversation(r.format[r.cfg.Template].format)
	if err != nil {
		t.Errorf("%s: %v", c.name, err)
		return
	}
	if got, want := asJSON(jinja.ListOf(conv)), asJSON(c.row.Get("conversation")); got != want {
		t.Errorf("%s: conversation\n got %s\nwant %s", c.name, got, want)
	}
	tools := jinja.None
	if req.tools != nil {
		tools = jinja.ListOf(req.tools)
	}
	if got, want := asJSON(tools), asJSON(orNone(c.row.Get("tools"))); got != want {
		t.Errorf("%s: tools\n got %s\nwant %s", c.name, got, want)
	}
}
