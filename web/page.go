package web

import (
	"embed"
	"net/http"
	"strings"
)

// The dashboard: static files without any outside source, which ask the JSON
// API for what they show.
//
//go:embed page
var page embed.FS

// dashboard serves the page's own files.
func dashboard() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		locked(w)
		http.ServeFileFS(w, r, page, strings.TrimPrefix(r.URL.Path, "/"))
	})
}

// index answers browsers with the dashboard, and anything else (curl) with the
// list of paths.
func index(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Write([]byte("kvasir admin (a browser gets a page here)\n\n/metrics\n/v1/kvasir/fleet\n/v1/kvasir/decisions?limit=20\n/health\n"))
		return
	}
	locked(w)
	b, err := page.ReadFile("page/index.html")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(b)
}

// locked lets the page load nothing but its own files, and nobody frame it.
func locked(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
}
