package files

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bounds on what a hub may send.
const (
	maxListing = 32 << 20  // bytes of /api/models/REPO
	maxFile    = 256 << 20 // bytes of one file
)

// fetch brings the wanted files of a repository's main revision into the cache, in
// the hub's own layout. A file that broke off is continued where it ended; each is
// checked against the sum that the hub gives.
func (c Config) fetch(ctx context.Context, repo string) (Place, error) {
	h := hub{base: strings.TrimRight(c.endpoint(), "/"), token: c.token()}
	rev, names, err := h.list(ctx, repo)
	if err != nil {
		return Place{}, fmt.Errorf("hub %s: %w", h.base, err)
	}
	dir := c.folder(repo)
	snap := filepath.Join(dir, "snapshots", rev)
	if err := os.MkdirAll(snap, 0o755); err != nil {
		return Place{}, err
	}
	for _, n := range Wanted {
		if !slices.Contains(names, n) {
			continue
		}
		if err := h.file(ctx, repo, rev, n, filepath.Join(snap, n)); err != nil {
			return Place{}, fmt.Errorf("hub %s: %s of %s: %w", h.base, n, repo, err)
		}
	}
	if err := usable(snap); err != nil {
		return Place{}, fmt.Errorf("hub %s: %s: %w", h.base, repo, err)
	}
	if err := writeFile(filepath.Join(snap, listing), []byte(strings.Join(names, "\n")+"\n")); err != nil {
		return Place{}, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "refs"), 0o755); err != nil {
		return Place{}, err
	}
	if err := writeFile(filepath.Join(dir, "refs", "main"), []byte(rev)); err != nil {
		return Place{}, err
	}
	return Place{Dir: snap, How: "fetched from " + h.base, Files: names}, nil
}

func (c Config) token() string {
	if t := os.Getenv("HF_TOKEN"); t != "" {
		return strings.TrimSpace(t)
	}
	b, err := os.ReadFile(c.tokenFile())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// A hub is a server that speaks Hugging Face's HTTP.
type hub struct{ base, token string }

// client follows redirects to other hosts, but leaves the token behind there (as
// net/http does with Authorization).
var client = &http.Client{Timeout: 10 * time.Minute}

func (h hub) get(ctx context.Context, u string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
		return res, nil
	}
	res.Body.Close()
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%s: set HF_TOKEN, and accept the model's terms", res.Status)
	case http.StatusNotFound:
		return nil, errors.New("404: no such repository, or it is private: set HF_TOKEN")
	}
	return nil, errors.New(res.Status)
}

// list returns the main revision and the names of all files.
func (h hub) list(ctx context.Context, repo string) (rev string, names []string, err error) {
	res, err := h.get(ctx, h.base+"/api/models/"+repo+"/revision/main", 0)
	if err != nil {
		return "", nil, err
	}
	defer res.Body.Close()
	var info struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxListing)).Decode(&info); err != nil {
		return "", nil, fmt.Errorf("list of files: %w", err)
	}
	if !revision.MatchString(info.SHA) {
		return "", nil, fmt.Errorf("list of files: revision %.80q", info.SHA)
	}
	for _, s := range info.Siblings {
		if s.Name != "" && !strings.ContainsAny(s.Name, "\n\r") {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return info.SHA, names, nil
}

// file fetches one file to dst, unless it is there.
func (h hub) file(ctx context.Context, repo, rev, name, dst string) error {
	if _, err := os.Stat(dst); err == nil {
		return nil
	}
	part := dst + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	u := h.base + "/" + path.Join(repo, "resolve", rev) + "/" + url.PathEscape(name)
	res, err := h.get(ctx, u, have)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK: // the whole file, whatever we asked for
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
		have = 0
	case http.StatusRequestedRangeNotSatisfiable: // we have all of it, or rubbish: the sum tells
		res.Body = io.NopCloser(strings.NewReader(""))
	}
	n, err := io.Copy(f, io.LimitReader(res.Body, maxFile-have+1))
	if err != nil {
		return fmt.Errorf("after %d bytes: %w (the rest is fetched next time)", have+n, err)
	}
	if have+n > maxFile {
		os.Remove(part)
		return fmt.Errorf("more than %d bytes", maxFile)
	}
	if err := check(f, sumOf(res)); err != nil {
		os.Remove(part)
		return err
	}
	return os.Rename(part, dst)
}

// sumOf returns the sum that the hub gives for a file: sha256 for large ones, git's
// blob id for small ones, "" if it gives none.
func sumOf(res *http.Response) string {
	for _, v := range []string{res.Header.Get("X-Linked-Etag"), res.Header.Get("Etag")} {
		v = strings.Trim(strings.TrimPrefix(v, "W/"), `"`)
		if len(v) == 64 || len(v) == 40 {
			if _, err := hex.DecodeString(v); err == nil {
				return v
			}
		}
	}
	if r := res.Request; r != nil && r.Response != nil { // the answer that redirected here
		return sumOf(r.Response)
	}
	return ""
}

func check(f *os.File, want string) error {
	if want == "" {
		return nil
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var h hash.Hash
	if len(want) == 64 {
		h = sha256.New()
	} else {
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", size)
	}
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("its sum is %s, want %s: fetched again next time", got, want)
	}
	return nil
}

// writeFile replaces a file in one step.
func writeFile(name string, b []byte) error {
	tmp := name + ".tmp"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}
