package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A fake hub has one repository, and breaks off the first answer for one file.
type fakeHub struct {
	*httptest.Server
	files  map[string]string
	breaks map[string]int // bytes to send before breaking off, once
	wrong  map[string]bool
	asked  []string
	tokens []string
}

func newHub(t *testing.T) *fakeHub {
	h := &fakeHub{files: map[string]string{
		"tokenizer.json": `{"model":{}}`, "config.json": `{}`, "consolidated.safetensors": "weights", "README.md": "x",
	}, breaks: map[string]int{}, wrong: map[string]bool{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	t.Setenv("HF_HOME", t.TempDir())
	for _, v := range []string{"HF_ENDPOINT", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		t.Setenv(v, "")
	}
	return h
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.tokens = append(h.tokens, r.Header.Get("Authorization"))
	if r.URL.Path == "/api/models/org/name/revision/main" {
		var s []string
		for n := range h.files {
			s = append(s, fmt.Sprintf(`{"rfilename":%q}`, n))
		}
		fmt.Fprintf(w, `{"sha":"abc123","siblings":[%s]}`, strings.Join(s, ","))
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/org/name/resolve/abc123/")
	body, have := h.files[name]
	if !ok || !have {
		http.NotFound(w, r)
		return
	}
	h.asked = append(h.asked, name+" "+r.Header.Get("Range"))
	sum := sha256.Sum256([]byte(body))
	if h.wrong[name] {
		sum[0]++
	}
	w.Header().Set("X-Linked-Etag", `"`+hex.EncodeToString(sum[:])+`"`)
	if n := h.breaks[name]; n > 0 {
		delete(h.breaks, name)
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.Write([]byte(body[:n]))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	var from int
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write([]byte(body[from:]))
}

func find(c Config, name, root string) (Place, error) {
	return Find(context.Background(), c, name, root)
}

func TestHubThenCache(t *testing.T) {
	h := newHub(t)
	t.Setenv("HF_TOKEN", "secret")
	c := Config{Hub: true, Endpoint: h.URL}
	p, err := find(c, "served", "org/name")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(p.Dir, "tokenizer.json")); string(b) != h.files["tokenizer.json"] {
		t.Errorf("tokenizer.json is %q", b)
	}
	if !slices.Contains(p.Files, "consolidated.safetensors") || slices.ContainsFunc(h.asked, func(s string) bool { return strings.Contains(s, "safetensors") }) {
		t.Errorf("files %v, asked %v: want the names of all files, and no weights fetched", p.Files, h.asked)
	}
	if h.tokens[0] != "Bearer secret" {
		t.Errorf("authorization %q", h.tokens[0])
	}
	n := len(h.asked)
	t.Setenv("HF_HUB_OFFLINE", "1")
	q, err := find(c, "served", "org/name")
	if err != nil || q.Dir != p.Dir || len(h.asked) != n || !slices.Equal(q.Files, p.Files) {
		t.Errorf("second time: %+v, %v, asked %v; want the cache", q, err, h.asked[n:])
	}
}

func TestBrokenOffIsContinued(t *testing.T) {
	h := newHub(t)
	h.breaks["tokenizer.json"] = 5
	c := Config{Hub: true, Endpoint: h.URL}
	if _, err := find(c, "served", "org/name"); err == nil {
		t.Fatal("a broken fetch succeeded")
	}
	p, err := find(c, "served", "org/name")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(p.Dir, "tokenizer.json")); string(b) != h.files["tokenizer.json"] {
		t.Errorf("tokenizer.json is %q", b)
	}
	if !slices.Contains(h.asked, "tokenizer.json bytes=5-") {
		t.Errorf("asked %q, want the rest from byte 5", h.asked)
	}
}

func TestWrongSumIsRefused(t *testing.T) {
	h := newHub(t)
	h.wrong["tokenizer.json"] = true
	_, err := find(Config{Hub: true, Endpoint: h.URL}, "served", "org/name")
	if err == nil || !strings.Contains(err.Error(), "sum") {
		t.Errorf("%v, want an error about the sum", err)
	}
}

// A repository that is named for a model wins over the engine's own, of that model only.
func TestReposNameAnother(t *testing.T) {
	h := newHub(t)
	c := Config{Hub: true, Endpoint: h.URL, Repos: map[string]string{"m": "org/name"}}
	for _, root := range []string{"", "org/other"} {
		if p, err := find(c, "m", root); err != nil || !strings.Contains(p.Dir, "models--org--name") {
			t.Errorf("root %q: %+v, %v; want org/name", root, p, err)
		}
		for name, c := range map[string]Config{"n": c, "m": {Hub: true, Endpoint: h.URL}} {
			if p, err := find(c, name, root); err == nil {
				t.Errorf("%s without a repository of its own, root %q: %+v", name, root, p)
			}
		}
	}
}

// What is fetched is fetched from Endpoint, with the token of TokenFile, into Cache, and
// only if Hub allows it.
func TestHubByItsSettings(t *testing.T) {
	h, dir := newHub(t), t.TempDir()
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte("from the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Endpoint: h.URL, TokenFile: secret, Cache: filepath.Join(dir, "cache")}
	if _, err := find(c, "m", "org/name"); err == nil || len(h.tokens) > 0 {
		t.Errorf("%v, %d questions: want none while hub is off", err, len(h.tokens))
	}
	c.Hub = true
	p, err := find(c, "m", "org/name")
	if err != nil || !strings.HasPrefix(p.Dir, c.Cache+string(filepath.Separator)) {
		t.Fatalf("%+v, %v; want it in %s", p, err, c.Cache)
	}
	for _, got := range h.tokens {
		if got != "Bearer from the file" {
			t.Errorf("asked with %q", got)
		}
	}
	c.Cache, c.TokenFile = filepath.Join(dir, "another"), ""
	n := len(h.tokens)
	if _, err := find(c, "m", "org/name"); err != nil || len(h.tokens) == n || h.tokens[n] != "" {
		t.Errorf("%v: want it fetched anew, without a token: %q", err, h.tokens[n:])
	}
}

func TestOrder(t *testing.T) {
	newHub(t)
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("{}"), 0o644)
	if p, err := find(Config{Dirs: map[string]string{"m": dir}}, "m", "org/name"); err != nil || p.How != "configured directory" {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := find(Config{}, "m", dir); err != nil || p.Dir != dir {
		t.Errorf("the engine's path: %+v, %v", p, err)
	}
	_, err := find(Config{}, "m", "org/name")
	for _, want := range []string{"no revision main", "tokens.files.hub is off"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}
	if _, err := find(Config{Dirs: map[string]string{"m": "/nowhere"}}, "m", dir); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v: a configured directory that doesn't do is an error, not passed over", err)
	}
	for _, root := range []string{"../../etc/passwd", "a/../b", "org/na me", "a/b/c"} {
		if _, err := find(Config{Hub: true, Endpoint: "http://127.0.0.1:1"}, "m", root); err == nil || strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("root %q: %v: want it refused before anyone is asked", root, err)
		}
	}
}
