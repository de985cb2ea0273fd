package sched_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/goccy/go-yaml"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/ledger"
	"kvasir/policy"
	"kvasir/sched"
)

// TestScripts plays testdata/*.txt: what a person wants to see of the seam between
// request, fleet, index, ledger and policy. A line is a command; what it has to say
// stands below it in the answer, and commands without a word are not repeated there.
// After a change of what is shown, go test ./sched -run Scripts -rewrite writes the
// answers anew: then read the difference, as it is what a user gets.
//
//	new POLICY [receipts=N] [predict=D] [silence=D] [count-output] [token=D ...] [{settings of the policy, as in kvasir.yaml}]
//	                                token=1ms: marginal and steer know that a prompt token takes 1 ms, and, with
//	                                step=D and decode-step=D, a step and a token of an answer, and learn nothing
//	replica A [models=(m,adapter<m)] [max-len=N] [block=16] [blocks=N] [max-batch=N] [ranks=N] [state=up]
//	change A ...                    likewise, what is named only
//	remove A                        from the fleet; its target's number stays taken until: release A
//	store A [tokens=(x:160)] [tier=host]   the engine announces the full blocks of x
//	evict A [tokens=(x:160)]        the engine has dropped its last block
//	trust A LEVEL [why=..]          how far its events can be believed
//	gauge A [running=N] [waiting=N] [kv=F]   what its engine says of itself, now
//	route [tokens=(x:160,y:32)] ... a request; see script.request
//	peer A [tokens=(x:160)] ...     another router tells that it has placed one there
//	first N; progress N OUTPUT; served N PROMPT CACHED; done N [failed | cancelled]
//	serve TIMES CACHED tokens=(x:160) [took=D] [answer=N]   that many requests from start to end, each
//	                                served so much from cache; with its first token after D, and then N of them
//	wait D; tick
//	load A; state A; learned A; match [tokens=(x:160)]; costs; receipts [limit=N]
//	forget A; keep; restore [text]  the policy's state, of the last keep
//	spy [pick=A] [shed=D] ...       what the policy `spy` does from now on; see spy
//
// A replica with ranks has A/0, A/1, ... Its first one is A. Tokens (x:160,y:32) are
// 160 tokens of the text x and then 32 of y; equal names are equal texts.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d scripts, %v", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		if name == "mutants" { // of lab/mutants
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := &script{t: t}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				s.t, s.d = t, d
				s.out.Reset()
				for line := range strings.Lines(d.Input) {
					s.line(strings.TrimSpace(line))
				}
				return s.out.String()
			})
		})
	}
}

// A script is what its commands have made so far.
type script struct {
	t    *testing.T
	d    *datadriven.TestData
	out  strings.Builder
	args map[string][]string // of the line at hand
	arg  []string            // those without a value, in order

	*sched.Scheduler
	now   time.Time
	fleet *fleet.Table
	index *index.Index
	names map[kv.Target]string
	open  map[uint64]*sched.Decision
	spy   *spy // nil for a shipped policy
	kept  []byte
	quiet bool // don't tell of ends
}

var start = time.Unix(1_700_000_000, 0)

func (s *script) line(line string) {
	if line == "" || line[0] == '#' {
		return
	}
	settings := ""
	if i := strings.IndexByte(line, '{'); i >= 0 {
		line, settings = line[:i], line[i:]
	}
	cmd, args, err := datadriven.ParseLine(line)
	if err != nil {
		s.fail("%v", err)
	}
	s.args, s.arg = map[string][]string{}, nil
	for _, a := range args {
		if s.args[a.Key] = a.Vals; len(a.Vals) == 0 {
			s.arg = append(s.arg, a.Key)
		}
	}
	before := s.out.Len()
	if cmd == "new" {
		s.new(settings)
	} else if do, ok := commands[cmd]; ok {
		do(s)
	} else {
		s.fail("unknown command %q", cmd)
	}
	if said := s.out.String()[before:]; said != "" {
		head := s.out.String()[:before]
		s.out.Reset()
		fmt.Fprintf(&s.out, "%s> %s\n%s", head, line, said)
	}
}

func (s *script) new(settings string) {
	cfg := policy.Defaults()
	if settings != "" {
		if err := yaml.UnmarshalWithOptions([]byte(settings), &cfg, yaml.Strict()); err != nil {
			s.fail("%v", err)
		}
	}
	s.now, s.fleet, s.spy = start, new(fleet.Table), nil
	s.names, s.open = map[kv.Target]string{}, map[uint64]*sched.Decision{}
	s.index = index.New(index.Config{Seed: 5})
	parts := sched.Parts{
		Fleet: s.fleet, Index: s.index, Seed: 5, Name: s.word(0),
		Ledger: ledger.New(ledger.Config{OutputBlocks: s.has("count-output")}),
		Hooks: sched.Hooks{
			Drifted: func(t kv.Target, why string) { s.say("drifted: %s: %s", s.names[t], why) },
			Short:   func(t kv.Target, why string) { s.say("short: %s: %s", s.names[t], why) },
			Ended: func(r *sched.Receipt) {
				if !s.quiet {
					s.say("%s", s.ended(r))
				}
			},
		},
	}
	if parts.Name == "spy" {
		s.spy = &spy{script: s}
		parts.Policy = s.spy
	} else {
		var err error
		cfg.Name = parts.Name
		if s.has("token") {
			cfg.Marginal.Learn = false
			cfg.Marginal.Coefficients = policy.Coefficients{
				PrefillToken: s.duration("token", 0).Seconds(), Attention: 1e-15, Step: s.duration("step", 1).Seconds(),
				DecodeStep: s.duration("decode-step", 1).Seconds(), DecodeRequest: 1e-12, DecodeToken: 1e-15,
			}
		}
		if parts.Policy, err = policy.New(cfg, rand.New(rand.NewPCG(1, 2)).IntN); err != nil {
			s.fail("%v", err)
		}
	}
	s.Scheduler = sched.New(sched.Config{
		Receipts: s.num("receipts", 0), PredictFor: s.duration("predict", 0), Silence: s.duration("silence", 0),
	}, parts)
}

func (s *script) say(format string, a ...any) { fmt.Fprintf(&s.out, "  "+format+"\n", a...) }

func (s *script) fail(format string, a ...any) {
	s.t.Helper()
	s.d.Fatalf(s.t, format, a...)
}

// The arguments of a line.

func (s *script) has(k string) bool { _, ok := s.args[k]; return ok }

// word returns the i-th argument without a value.
func (s *script) word(i int) string {
	if i >= len(s.arg) {
		s.fail("too few words")
	}
	return s.arg[i]
}

func (s *script) str(k, unless string) string {
	if v := s.args[k]; len(v) > 0 {
		return v[0]
	}
	return unless
}

func (s *script) num(k string, unless int) int {
	if !s.has(k) {
		return unless
	}
	return s.atoi(s.str(k, ""))
}

func (s *script) atoi(v string) int {
	n, err := strconv.Atoi(v)
	if err != nil {
		s.fail("%v", err)
	}
	return n
}

func (s *script) duration(k string, unless time.Duration) time.Duration {
	if !s.has(k) {
		return unless
	}
	d, err := time.ParseDuration(s.str(k, ""))
	if err != nil {
		s.fail("%v", err)
	}
	return d
}

func (s *script) float(k string) float64 {
	f, err := strconv.ParseFloat(s.str(k, "0"), 64)
	if err != nil {
		s.fail("%v", err)
	}
	return f
}

// target returns the target that the i-th word names.
func (s *script) target(i int) kv.Target { return s.named(s.word(i)) }

func (s *script) named(name string) kv.Target {
	for t, n := range s.names {
		if n == name {
			return t
		}
	}
	s.fail("no target %q", name)
	return 0
}

// tokens reads tokens=(x:160,y:32).
func (s *script) tokens() (out []uint32) {
	for _, part := range s.args["tokens"] {
		text, n, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok {
			s.fail("tokens=(%s): want TEXT:LENGTH", part)
		}
		salt := uint32(0)
		for _, c := range text {
			salt = salt*31 + uint32(c)
		}
		for i := range s.atoi(n) {
			out = append(out, salt*1_000_003+uint32(i))
		}
	}
	return out
}
