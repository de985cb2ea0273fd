package trace

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"kvasir/receipt"
)

// A Format is a kind of file.
type Format uint8

// The formats that Open detects.
const (
	Mooncake Format = iota
	Cell
	Turns
	Weka
	Receipts
)

var formatNames = [...]string{"mooncake", "cell", "turns", "weka", "receipts"}

func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// A Reader yields the lines of a trace, one at a time.
type Reader struct {
	name    string
	format  Format
	skipBad bool
	skipped int
	first   error // of the first bad line
	line    int
	br      *bufio.Reader
	buf     []byte
	peeked  bool
	cut     bool // the line is the last one and has no end
	header  receipt.Header
	closers []io.Closer
}

// Options change how a Reader reads. The zero Options is fine.
type Options struct {
	SkipBad bool // count bad lines instead of failing at the first
}

// Open opens the trace in file name and detects its format from the first line.
func Open(name string, o Options) (*Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(f, name, o)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.closers = append(r.closers, f)
	return r, nil
}

// NewReader reads a trace from src, plain or gzip; name is for messages.
func NewReader(src io.Reader, name string, o Options) (*Reader, error) {
	br := bufio.NewReaderSize(src, 1<<16)
	r := &Reader{name: name, skipBad: o.SkipBad, br: br}
	if head, _ := br.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("%s: looks like gzip but isn't: %w", name, err)
		}
		r.br = bufio.NewReaderSize(z, 1<<16)
		r.closers = append(r.closers, z)
	}
	for {
		line, err := r.next()
		if err == io.EOF {
			return nil, fmt.Errorf("%s: no line in it: expected JSON Lines of a trace", name)
		}
		if err != nil {
			return nil, err
		}
		f, err := detect(line)
		if err == nil {
			r.format, r.peeked = f, true
			return r, nil
		}
		if err := r.bad(&LineError{File: name, Line: r.line, Msg: err.Error()}); err != nil {
			return nil, err
		}
	}
}

// Format returns what the first line looked like.
func (r *Reader) Format() Format { return r.format }

// Sessions reports whether the trace has sessions (NextSession) rather than
// requests (NextRequest).
func (r *Reader) Sessions() bool { return r.format == Turns || r.format == Weka }

// Skipped returns how many bad lines were skipped, and the first one's error.
func (r *Reader) Skipped() (int, error) { return r.skipped, r.first }

// Close closes what Open opened.
func (r *Reader) Close() error {
	var err error
	for _, c := range r.closers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// detect tells the format from the names in the first object.
func detect(line []byte) (Format, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(line, &keys); err != nil {
		return 0, fmt.Errorf("not a JSON object: %v", err)
	}
	has := func(names ...string) bool {
		for _, n := range names {
			if _, ok := keys[n]; !ok {
				return false
			}
		}
		return true
	}
	switch {
	case has("kvasir"):
		return Receipts, nil
	case has("turns"):
		return Turns, nil
	case has("main"):
		return Weka, nil
	case has("timestamp"), has("hash_ids"), has("input_length"):
		return Mooncake, nil
	case has("t"), has("input", "blocks"):
		return Cell, nil
	}
	return 0, errors.New(`no known format: expected a line with "timestamp" (Mooncake), "t" (cell), "turns" (sessions), "main" (Claude Code sessions) or "kvasir" (receipts)`)
}

// next returns the next line that is not blank, without its end; it is valid
// until the call after. At the end of the file it returns io.EOF.
func (r *Reader) next() ([]byte, error) {
	if r.peeked {
		r.peeked = false
		return r.buf, nil
	}
	for {
		r.line++
		r.buf = r.buf[:0]
		for {
			part, err := r.br.ReadSlice('\n')
			r.buf = append(r.buf, part...)
			if err == nil {
				break
			}
			if err == bufio.ErrBufferFull {
				if len(r.buf) > maxLine {
					return nil, &LineError{File: r.name, Line: r.line, Msg: fmt.Sprintf("longer than %d bytes", maxLine)}
				}
				continue
			}
			if err == io.EOF {
				r.cut = true
				break
			}
			return nil, fmt.Errorf("%s:%d: %w", r.name, r.line, err)
		}
		if len(r.buf) == 0 {
			return nil, io.EOF
		}
		end := len(r.buf)
		for end > 0 && (r.buf[end-1] == '\n' || r.buf[end-1] == '\r' || r.buf[end-1] == ' ' || r.buf[end-1] == '\t') {
			end--
		}
		if end > 0 {
			r.buf = r.buf[:end]
			return r.buf, nil
		}
	}
}

// bad decides about a bad line: nil if it is to be skipped.
func (r *Reader) bad(err error) error {
	if !r.skipBad {
		return err
	}
	r.note(err)
	return nil
}

// note counts a bad line that is skipped.
func (r *Reader) note(err error) {
	if r.skipped == 0 {
		r.first = err
	}
	r.skipped++
}

func (r *Reader) lineError(field, format string, args ...any) error {
	return &LineError{File: r.name, Line: r.line, Field: field, Msg: fmt.Sprintf(format, args...)}
}

// NextRequest returns the next request of an open-loop trace, io.EOF at its end.
func (r *Reader) NextRequest() (Request, error) {
	if r.Sessions() {
		return Request{}, fmt.Errorf("%s holds sessions (%s), which are played closed loop: use NextSession", r.name, r.format)
	}
	if r.format == Receipts {
		return r.nextReceiptRequest()
	}
	for {
		line, err := r.next()
		if err != nil {
			return Request{}, err
		}
		var q Request
		switch r.format {
		case Mooncake:
			q, err = r.mooncake(line)
		case Cell:
			q, err = r.cell(line)
		}
		if err == nil {
			return q, nil
		}
		if err = r.bad(err); err != nil {
			return Request{}, err
		}
	}
}

// NextSession returns the next session of a closed-loop trace, io.EOF at its end.
// A Claude Code line yields its main agent; its sub-agents follow one by one.
func (r *Reader) NextSession() (Session, error) {
	if r.format != Turns {
		return Session{}, fmt.Errorf("%s holds no sessions of turns but %s lines: use NextWeka or NextRequest", r.name, r.format)
	}
	for {
		line, err := r.next()
		if err != nil {
			return Session{}, err
		}
		s, err := r.turns(line)
		if err == nil {
			return s, nil
		}
		if err = r.bad(err); err != nil {
			return Session{}, err
		}
	}
}
