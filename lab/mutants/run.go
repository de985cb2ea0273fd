package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A runner builds and runs the tests of one package with one mutant each.
type runner struct {
	p       *pkg
	o       *options
	work    string
	cpu     time.Duration // what the tests may use; in processor time, as the machine may be busy
	wall    time.Duration // and what they may wait, should they hang
	covered coverage
}

// newRunner measures the unchanged tests: they must pass, and say which lines they reach.
func newRunner(ctx context.Context, p *pkg, work string, o *options) (*runner, error) {
	r := &runner{p: p, o: o, work: work, cpu: 10 * time.Minute, wall: 10 * time.Minute}
	bin, profile := filepath.Join(work, "clean.test"), filepath.Join(work, "clean.cover")
	if out, err := r.build(ctx, bin, "-cover"); err != nil {
		return nil, fmt.Errorf("the unchanged tests don't build: %w\n%s", err, out)
	}
	start := time.Now()
	used, out, err := r.tests(ctx, bin, "-test.coverprofile", profile)
	if err != nil {
		return nil, fmt.Errorf("the unchanged tests fail, so no mutant says anything: %w\n%s", err, tail(out))
	}
	r.cpu = 3*used + 4*time.Second
	r.wall = 10*time.Since(start) + 30*time.Second
	r.covered, err = readCoverage(profile)
	return r, err
}

// all decides every mutant, o.jobs at once. The order of the results is that of the sample.
func (r *runner) all(ctx context.Context, sample []*mutant) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, max(r.o.jobs, 1))
	for w := range errs {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(sample) || errs[w] != nil {
					return
				}
				errs[w] = r.decide(ctx, sample[i], w)
				if r.o.verbose && errs[w] == nil {
					fmt.Fprintf(os.Stderr, "%d/%d %s: %s\n", i+1, len(sample), sample[i].State, sample[i].Name)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// decide says what becomes of m. worker names the files that it may overwrite.
func (r *runner) decide(ctx context.Context, m *mutant, worker int) error {
	if m.fn != "" && !r.covered.reached(m) {
		m.State = uncovered
		return nil
	}
	base := filepath.Join(r.work, fmt.Sprint("w", worker))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(r.p.dir, m.file.name): base + ".go"}})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(base+".go", m.text(), 0o644), os.WriteFile(base+".json", overlay, 0o644)); err != nil {
		return err
	}
	if _, err := r.build(ctx, base+".test", "-overlay", base+".json"); err != nil {
		m.State = broken
		return ctx.Err()
	}
	used, _, err := r.tests(ctx, base+".test")
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		m.State = survived
	case used >= r.cpu || errors.Is(err, errWaited):
		m.State = hung
	default:
		m.State = killed
	}
	return nil
}

// build compiles the package's tests. -s and -w spare the linker half of its work.
func (r *runner) build(ctx context.Context, bin string, flags ...string) ([]byte, error) {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", bin}, flags...)
	return exec.CommandContext(ctx, "go", append(args, r.p.path)...).CombinedOutput()
}

var errWaited = errors.New("the tests hang")

// tests runs a test binary in its package's folder, up to the first failure, with a bound on processor
// time and address space, and says how much time it has used.
func (r *runner) tests(ctx context.Context, bin string, flags ...string) (time.Duration, []byte, error) {
	limited, cancel := context.WithTimeoutCause(ctx, r.wall, errWaited)
	defer cancel()
	limits := fmt.Sprintf("ulimit -t %d -v %d; exec \"$0\" \"$@\"", int(r.cpu.Seconds())+1, 8<<20)
	args := append([]string{"-c", limits, bin, "-test.short", "-test.failfast"}, flags...)
	cmd := exec.CommandContext(limited, "bash", args...)
	cmd.Dir = r.p.dir
	out, err := cmd.CombinedOutput()
	if err != nil && context.Cause(limited) == errWaited {
		err = errWaited
	}
	if cmd.ProcessState == nil {
		return 0, out, err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), out, err
}

func tail(b []byte) []byte { return b[max(0, len(b)-4000):] }

// coverage has, per file, the pieces of code and whether a test has run them.
type coverage map[string][]block

type block struct {
	from, to [2]int // line, column
	ran      bool
}

// readCoverage reads a profile: "kvasir/kv/hash.go:12.3,14.2 1 5".
func readCoverage(name string) (coverage, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c := coverage{}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		path, rest, ok := strings.Cut(s.Text(), ":")
		if !ok || path == "mode" {
			continue
		}
		var b block
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.from[0], &b.from[1], &b.to[0], &b.to[1], &statements, &count); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, s.Text(), err)
		}
		b.ran = count > 0
		file := filepath.Base(path)
		c[file] = append(c[file], b)
	}
	return c, nil
}

// reached is false if m lies in pieces that no test has run. A place in no piece
// (the condition of a case) may have been.
func (c coverage) reached(m *mutant) bool {
	at := [2]int{m.Line, m.column()}
	inside := false
	for _, b := range c[m.File] {
		if before(at, b.from) || !before(at, b.to) {
			continue
		}
		if b.ran {
			return true
		}
		inside = true
	}
	return !inside
}

func before(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

func (m *mutant) column() int {
	start := m.from
	for start > 0 && m.file.src[start-1] != '\n' {
		start--
	}
	return m.from - start + 1
}
