package receipt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Config says where the log is. Every field is needed.
type Config struct {
	File     string
	MaxBytes int64 // of the file; then it is rotated
	Keep     int   // rotated files; older ones are deleted
}

// A file is the log's present file. By one goroutine only.
type file struct {
	cfg    Config
	header []byte
	now    func() time.Time
	f      disk   // nil: not open
	size   int64  // bytes of whole lines in it
	begun  uint64 // files
}

// A disk is what is used of an *os.File.
type disk interface {
	io.WriteCloser
	Truncate(int64) error
	Stat() (fs.FileInfo, error)
}

// stamp is the time in the name of a rotated file, in UTC: names are in order of time.
const stamp = "20060102T150405.000Z"

// open begins a file. One that is there becomes a rotated one.
func (f *file) open() error {
	if err := f.rotateAway(); err != nil {
		return err
	}
	o, err := os.OpenFile(f.cfg.File, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := o.Write(f.header); err != nil {
		o.Truncate(0)
		o.Close()
		return err
	}
	f.f, f.size = o, int64(len(f.header))
	f.begun++
	return nil
}

// rotateAway renames what is at the log's path, and deletes what is too old. An
// empty file stays where it is.
func (f *file) rotateAway() error {
	info, err := os.Stat(f.cfg.File)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.cfg.File)
	}
	all, err := Rotated(f.cfg.File)
	if err != nil {
		return err
	}
	t := f.now().UTC().Truncate(time.Millisecond)
	if len(all) > 0 { // it comes after the others, whatever the clock says
		if last, err := rotatedAt(f.cfg.File, all[len(all)-1]); err == nil && !t.After(last) {
			t = last.Add(time.Millisecond)
		}
	}
	if err := os.Rename(f.cfg.File, rotated(f.cfg.File, t)); err != nil {
		return err
	}
	return f.deleteOld()
}

// rotated is FILE-TIME.jsonl for FILE.jsonl.
func rotated(name string, t time.Time) string {
	ext := filepath.Ext(name)
	return strings.TrimSuffix(name, ext) + "-" + t.Format(stamp) + ext
}

// rotatedAt is the time in the name of a rotated file.
func rotatedAt(name, file string) (time.Time, error) {
	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(filepath.Base(name), ext) + "-"
	return time.Parse(stamp, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), ".gz"), stem), ext))
}

// deleteOld deletes the oldest rotated files beyond those to keep, gzipped or not.
func (f *file) deleteOld() error {
	all, err := Rotated(f.cfg.File)
	if err != nil {
		return err
	}
	for _, name := range all[:max(0, len(all)-f.cfg.Keep)] {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// Rotated returns the rotated files of the log called name, oldest first, those that
// somebody has compressed with gzip too.
func Rotated(name string) ([]string, error) {
	dir, base := filepath.Split(name)
	if dir == "" {
		dir = "."
	}
	ext := filepath.Ext(base)
	own := regexp.MustCompile("^" + regexp.QuoteMeta(strings.TrimSuffix(base, ext)) + `-\d{8}T\d{6}\.\d{3}Z` + regexp.QuoteMeta(ext) + `(\.gz)?$`)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list {
		if e.Type().IsRegular() && own.MatchString(e.Name()) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(out)
	return out, nil
}

// write appends whole lines, or nothing. After an error the next call tries again.
func (f *file) write(lines []byte) error {
	if f.f != nil && f.replaced() {
		f.close()
	}
	if f.f != nil && f.size > int64(len(f.header)) && f.size+int64(len(lines)) > f.cfg.MaxBytes {
		f.close()
	}
	if f.f == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if _, err := f.f.Write(lines); err != nil {
		if e := f.f.Truncate(f.size); e != nil { // half a line
			f.close()
		}
		return err
	}
	f.size += int64(len(lines))
	return nil
}

// replaced reports whether somebody has moved or deleted the file. What another
// router writes to in its place is left alone.
func (f *file) replaced() bool {
	at, err := os.Stat(f.cfg.File)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	own, err := f.f.Stat()
	return err == nil && at.Size() == 0 && !os.SameFile(at, own)
}

func (f *file) close() {
	if f.f != nil {
		f.f.Close()
		f.f = nil
	}
}

// Check says why a log could not be written to name, and leaves nothing behind.
func Check(name string) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", name)
	}
	t, err := os.CreateTemp(filepath.Dir(name), ".kvasir-check-*") // it will be renamed, and others made
	if err != nil {
		return err
	}
	return errors.Join(t.Close(), os.Remove(t.Name()))
}
