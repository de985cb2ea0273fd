package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func ask(t *testing.T, path, accept string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	Handler(Parts{}).ServeHTTP(w, r)
	b, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Result(), string(b)
}

// TestDashboard: a browser gets the page, every file that the page names is
// served, and nothing comes from elsewhere.
func TestDashboard(t *testing.T) {
	resp, body := ask(t, "/", "text/html,application/xhtml+xml")
	if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/html") {
		t.Fatalf("content type %q", ct)
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'self'") {
		t.Errorf("content security policy %q", csp)
	}
	names := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(body, -1)
	files := 0
	for _, m := range names {
		switch name := m[1]; {
		case strings.Contains(name, "//"):
			t.Errorf("the page reaches out: %s", name)
		case strings.HasPrefix(name, "page/"):
			files++
			if resp, _ := ask(t, "/"+name, "*/*"); resp.StatusCode != 200 {
				t.Errorf("%s: %d", name, resp.StatusCode)
			}
		}
	}
	if files != 2 {
		t.Errorf("%d files named, want style and script", files)
	}
}

// TestIndexForPrograms: without a browser there is the list of paths.
func TestIndexForPrograms(t *testing.T) {
	resp, body := ask(t, "/", "*/*")
	if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/plain") || !strings.Contains(body, "/v1/kvasir/fleet") {
		t.Errorf("%q: %q", ct, body)
	}
}

// TestPageServesOnlyItself: no listing, nothing above it.
func TestPageServesOnlyItself(t *testing.T) {
	for _, path := range []string{"/page/none.js", "/page/../web.go", "/page/%2e%2e/web.go"} {
		if resp, _ := ask(t, path, "*/*"); resp.StatusCode == 200 {
			t.Errorf("%s is served", path)
		}
	}
	if resp, body := ask(t, "/page/", "*/*"); resp.StatusCode == 200 && strings.Contains(body, "app.js\"") {
		t.Errorf("/page/ lists its files")
	}
}
