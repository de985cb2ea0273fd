package policy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"kvasir/kv"
)

// TestWalks takes each policy for the same walk and compares where it went: a change of
// code that was to change no choice changes none. The walk is 240 requests of sessions
// that come back with longer prompts, over five targets of which one is slow, one small
// and one goes away for a while.
//
// A block of testdata/walks.txt is a policy with settings, and its answer the target of
// each request (x: refused), which rules decided how often, and what it cost. After a
// change that was meant, -rewrite writes the answers anew; the difference is read.
func TestWalks(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("elsewhere products and sums are rounded once and not twice, and near ties go another way")
	}
	datadriven.RunTest(t, "testdata/walks.txt", func(t *testing.T, d *datadriven.TestData) string {
		cfg := named(d.Cmd)
		for _, line := range strings.Split(d.Input, "\n") {
			set, ok := walkSettings[line]
			if line != "" && !ok {
				d.Fatalf(t, "unknown setting %q", line)
			}
			if ok {
				set(&cfg)
			}
		}
		return takeWalk(t, cfg)
	})
}

// walkSettings are the settings of walks.txt, by what they are called there.
var walkSettings = map[string]func(*Config){
	"hot prefixes":       func(c *Config) { c.HotPrefix.Enabled = true },
	"guard":              func(c *Config) { c.Guard.Enabled, c.Guard.Abs = true, 3000 },
	"guard by requests":  func(c *Config) { c.Guard.Enabled, c.Guard.Abs, c.Guard.By = true, 2, "requests" },
	"explore":            func(c *Config) { c.Explore.Enabled, c.Explore.Share = true, .2 },
	"min spread":         func(c *Config) { c.MinSpread.Enabled, c.MinSpread.Cold, c.MinSpread.Window = true, 64, 5*time.Second },
	"dwell":              func(c *Config) { c.Dwell.Enabled = true },
	"shed":               func(c *Config) { c.Shed.Enabled, c.Shed.Rate, c.Shed.Queue, c.Shed.KVUsage = true, 4000, 2, .5 },
	"by prefix":          func(c *Config) { c.CHWBL.Key = "prefix" },
	"by tokens":          func(c *Config) { c.LeastLoad.By = "tokens" },
	"match index":        func(c *Config) { c.SGLang.Match = "index" },
	"match events":       func(c *Config) { c.SGLang.Match = "events" },
	"match tokens":       func(c *Config) { c.RayPrefix.Match = "index" },
	"tight balance":      func(c *Config) { c.SGLang.BalanceAbs, c.SGLang.BalanceUsage, c.SGLang.OverloadUsage = 2, .3, .7 },
	"random ties":        func(c *Config) { c.SGLang.RandomTies = true },
	"length":             func(c *Config) { c.LLMD.LengthWeight, c.LLMD.LengthScale = .5, 512 },
	"speculative":        func(c *Config) { c.LLMD.Speculative = true },
	"all terms":          func(c *Config) { c.Weighted.Alpha, c.Weighted.Beta, c.Weighted.Gamma = 1, .5, .7 },
	"short keys":         func(c *Config) { c.PrefixHash.Tokens = 32 },
	"no bound":           func(c *Config) { c.PrefixHash.LoadFactor = 0 },
	"known coefficients": func(c *Config) { c.Marginal.Coefficients, c.Marginal.Learn = nominal, false },
	"sigma":              func(c *Config) { c.Marginal.Sigma = .1 },
	"small tree":         func(c *Config) { c.SGLang.MaxTree, c.SGLang.EvictInterval = 400, 3*time.Second },
}

// A walker is the world of a walk: what a scheduler would know.
type walker struct {
	rnd  *rand.Rand
	now  float64
	held [5]map[kv.Hash]float64 // when the target had the block last
	open []walked
	load [5]kv.Load
	gone bool // target 4
}

// A walked request is on its way.
type walked struct {
	req           Request
	target        kv.Target
	prompt, fresh int
	first, end    float64
	started       bool
	at            float64
	output        int
	busy          int // requests decoding there at dispatch
	context       int
}

func takeWalk(t *testing.T, cfg Config) string {
	rnd := rand.New(rand.NewPCG(7, 7))
	p := must(t, cfg, rnd.IntN)
	w := &walker{rnd: rand.New(rand.NewPCG(3, 5))}
	for i := range w.held {
		w.held[i] = map[kv.Hash]float64{}
	}
	var where strings.Builder
	branches := map[string]int{}
	cost, priced := 0.0, 0
	lengths := map[int]int{}
	for n := range 240 {
		w.now += w.rnd.ExpFloat64() * .12
		w.pass(p, w.now)
		w.gone = n > 120 && n < 160
		if n == 121 {
			p.Forget(4)
			clear(w.held[4])
		}
		req, session := w.request(n, lengths)
		cands := w.candidates(&req)
		i := p.Pick(&req, cands)
		c := &cands[i]
		branches[req.Branch]++
		if !math.IsInf(c.Cost, 0) {
			cost += c.Cost
			priced++
		}
		if _, refused := p.Shed(&req, cands, i); refused {
			where.WriteByte('x')
			continue
		}
		p.Placed(&req, cands, i)
		fmt.Fprint(&where, c.Target)
		w.place(&req, c)
		lengths[session] += 2 + n%3
	}
	w.pass(p, 1e9)
	var out strings.Builder
	for s := where.String(); s != ""; {
		k := min(80, len(s))
		fmt.Fprintln(&out, s[:k])
		s = s[k:]
	}
	for _, b := range slices.Sorted(maps.Keys(branches)) {
		if b != "" {
			fmt.Fprintf(&out, "%s: %d\n", b, branches[b])
		}
	}
	if priced > 0 {
		fmt.Fprintf(&out, "mean cost %.5g\n", cost/float64(priced))
	}
	return out.String()
}

// request is the n-th one: of one of 12 sessions, of which two begin alike, or of none.
func (w *walker) request(n int, lengths map[int]int) (Request, int) {
	session := w.rnd.IntN(12)
	if w.rnd.IntN(3) == 0 {
		session = 0 // a hot one
	}
	blocks := 3 + lengths[session] + w.rnd.IntN(3)
	hashes := make([]kv.Hash, blocks)
	text := make([]byte, 0, 64*blocks)
	for k := range hashes {
		of := session
		if k < 2 {
			of = session % 2
		}
		hashes[k] = kv.Hash(h64(uint64(of*1000 + k + 1)))
		text = fmt.Appendf(text, "words of %d, part %d. ", of, k)
	}
	r := Request{
		Now: at(w.now), Tokens: 16*blocks + w.rnd.IntN(16), Hashes: hashes, BlockSize: 16, Text: text,
		SessionHash: h64(uint64(session) + 77), MaxOutput: 20 + w.rnd.IntN(100),
	}
	switch n % 16 {
	case 3:
		r.SessionHash = 0
	case 5:
		r.Hashes, r.BlockSize, r.Tokens, r.Text = nil, 0, 90, nil
	case 7:
		r.NextTurn = 2 * time.Second
	case 9:
		r.Priority = -1
	case 11:
		r.Deadline = 100 * time.Millisecond
	}
	return r, session
}

func (w *walker) candidates(req *Request) []Candidate {
	cands := fleet(5)
	if w.gone {
		cands = cands[:4]
	}
	for i := range cands {
		c := &cands[i]
		c.Blocks, c.Held, c.Load = 2000, len(w.held[i]), w.load[i]
		if i == 3 {
			c.Blocks = 60
		}
		if i == 2 {
			c.MaxBatch = 0
		}
		n := 0
		for n < len(req.Hashes) {
			if _, ok := w.held[i][req.Hashes[n]]; !ok {
				break
			}
			n++
		}
		gpu := min(16*n, req.Tokens-1)
		c.Overlap.GPU = int32(gpu)
		switch {
		case i == 1: // the later half is on host and disk
			c.Overlap = kv.Overlap{GPU: int32(gpu - gpu/2), Host: int32(gpu / 4), Disk: int32(gpu/2 - gpu/4)}
		case i == 2 && gpu > 16: // its last block is a prediction
			c.Overlap = kv.Overlap{GPU: int32(gpu - 16), Predicted: 16}
		}
		c.Load.NewBlocks = len(req.Hashes) - n
		if i != 4 {
			c.Engine = kv.Gauge{Running: c.Load.Requests, Waiting: max(c.Load.Requests-2, 0), KVUsage: min(1, float64(c.Load.DecodeBlocks)/80), At: req.Now}
		}
		for _, x := range w.open {
			if x.target == c.Target && !x.started {
				c.Load.Wait = max(c.Load.Wait, seconds(x.first-w.now))
			}
		}
	}
	return cands
}

// place books req at c; the slow target computes a third as fast.
func (w *walker) place(req *Request, c *Candidate) {
	i := int(c.Target)
	held := c.Overlap.Held() + int(c.Overlap.Predicted)
	fresh := max(req.Tokens-held, 1)
	rate := 3000.0
	if i == 0 {
		rate = 1000
	}
	x := walked{req: *req, target: c.Target, prompt: req.Tokens, fresh: fresh, at: w.now, output: 5 + w.rnd.IntN(60), busy: c.Load.Requests - c.Load.Prefilling, context: c.Load.Decode + c.Load.Output}
	x.first = w.now + c.Load.Wait.Seconds() + .01 + float64(fresh)/rate
	x.end = x.first + float64(x.output)*.012
	w.open = append(w.open, x)
	l := &w.load[i]
	l.Requests++
	l.Prefilling++
	l.Prefill += fresh
	l.Prompt += req.Tokens
	l.DecodeBlocks += len(req.Hashes)
	for _, h := range req.Hashes {
		w.held[i][h] = w.now
	}
	if over := len(w.held[i]) - (150 - 90*(i/3%2)); over > 0 {
		hashes := slices.Collect(maps.Keys(w.held[i]))
		slices.SortFunc(hashes, func(a, b kv.Hash) int {
			return cmp.Or(cmp.Compare(w.held[i][a], w.held[i][b]), cmp.Compare(a, b))
		})
		for _, h := range hashes[:over] {
			delete(w.held[i], h)
		}
	}
}

// pass lets happen what happens until then, and tells the policy.
func (w *walker) pass(p Policy, until float64) {
	for {
		k, when := -1, until
		for i := range w.open {
			x := &w.open[i]
			next := x.first
			if x.started {
				next = x.end
			}
			if next < when {
				k, when = i, next
			}
		}
		if k < 0 {
			return
		}
		x := &w.open[k]
		l := &w.load[x.target]
		if !x.started {
			x.started = true
			l.Prefilling--
			l.Prefill -= x.fresh
			l.Decode += x.prompt
			if len(x.req.Hashes) > 0 { // else its length isn't known
				p.FirstToken(&kv.FirstToken{
					Now: at(when), Target: x.target, Prompt: x.prompt, Cached: x.prompt - x.fresh, Latency: seconds(when - x.at), Alone: l.Prefilling == 0,
					Decoding: x.busy, Context: x.context, Tag: x.req.Tag, MaxBatch: 8192,
					Busy: kv.BusyPeriod{For: seconds(when - x.at), Admitted: l.Prefilling + 1, Owing: l.Prefilling},
				})
			}
			continue
		}
		p.Done(&kv.Done{
			Now: at(when), Target: x.target, Prompt: x.prompt, Output: x.output, Streaming: seconds(x.end - x.first),
			Requests: float64(l.Requests - l.Prefilling), Tokens: float64(l.Decode), Tag: x.req.Tag, Failed: x.output%9 == 0,
		})
		l.Requests--
		l.Prompt -= x.prompt
		l.Decode -= x.prompt
		l.DecodeBlocks -= len(x.req.Hashes)
		w.open = slices.Delete(w.open, k, k+1)
	}
}
