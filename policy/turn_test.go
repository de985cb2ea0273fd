package policy

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
	"kvasir/setting"
)

// under says where a setting acts: what has to be set beside it. Settings of a policy
// are tried under the policy of that name, those of a combinator with it enabled.
var under = map[string]string{
	"llmd":                           "name: llmd_precise",
	"llmd.match_length_scale_tokens": "name: llmd_precise, llmd.match_length_weight: 0.5",
	// With 64 requests between the fullest and the emptiest it would take luck.
	"sglang_cache_aware.balance_rel_threshold": "name: sglang_cache_aware, sglang_cache_aware.balance_abs_threshold: 1",
	"sglang_cache_aware.eviction_interval":     "name: sglang_cache_aware, sglang_cache_aware.max_tree_size: 20000",
	"dynamo.decode_stage":                      "name: dynamo, dynamo.router_track_prefill_tokens: false",
	"marginal.coefficients":                    "name: marginal, marginal.learn: false",
	"shed":                                     "name: marginal, shed.enabled: true, shed.deadline: 2s",
	"shed.enabled":                             "name: marginal, shed.deadline: 2s",
	"shed.prefill_rate":                        "name: least_load, shed.enabled: true, shed.deadline: 2s",
	"guard":                                    "name: marginal, guard.enabled: true, guard.abs: 1000, guard.rel: 1.1",
	"guard.enabled":                            "name: marginal, guard.abs: 1000, guard.rel: 1.1",
	"explore":                                  "name: marginal, explore.enabled: true, explore.share: 0.2",
	"min_spread":                               "name: pure_affinity, pure_affinity.ties: lowest, min_spread.enabled: true",
	"min_spread.enabled":                       "name: pure_affinity, pure_affinity.ties: lowest",
	"dwell":                                    "name: marginal, dwell.enabled: true",
	"hot_prefix":                               "name: marginal, hot_prefix.enabled: true",
	"hot_prefix.enabled":                       "name: marginal",
	"dwell.enabled":                            "name: marginal",
	"explore.enabled":                          "name: marginal, explore.share: 0.2",
}

// coefficients are a full set: none of them may be given alone.
const coefficients = "marginal.coefficients.prefill_token: 1e-4, marginal.coefficients.attention: 1e-9, marginal.coefficients.step: 0.01, " +
	"marginal.coefficients.decode_step: 0.01, marginal.coefficients.decode_request: 1e-5, marginal.coefficients.decode_token: 1e-8"

// rollouts are the settings that act only where answers take far longer than first
// tokens.
var rollouts = map[string]bool{"marginal.decode_top": true}

// base returns the configuration under which the setting at path is turned.
func base(t *testing.T, path string) Config {
	t.Helper()
	cfg := Defaults()
	group, _, _ := strings.Cut(path, ".")
	text, ok := under[path]
	for p := path; !ok && strings.Contains(p, "."); {
		p = p[:strings.LastIndex(p, ".")]
		text, ok = under[p]
	}
	if !ok && path != "name" {
		text = "name: " + group
	}
	if strings.HasPrefix(path, "marginal.coefficients") {
		text += ", " + coefficients
	}
	for _, pair := range strings.Split(text, ", ") {
		if k, v, ok := strings.Cut(pair, ": "); ok {
			if err := setting.Put(&cfg, k, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	return cfg
}

// Each setting of a policy changes something: a choice, a cost, a branch, a refusal,
// or what the policy asks the ledger to count. One that doesn't isn't a setting.
func TestEverySettingActs(t *testing.T) {
	for _, s := range setting.List(new(Config)) {
		if setting.Group(s.Field.Type) {
			continue
		}
		t.Run(s.Path, func(t *testing.T) {
			cfg, slow := base(t, s.Path), rollouts[s.Path]
			before := play(t, cfg, slow)
			tried := []string{}
			for _, v := range s.Values() {
				other := base(t, s.Path)
				if err := setting.Put(&other, s.Path, v); err != nil {
					t.Fatal(err)
				}
				if other.Validate() != nil {
					continue // not beside the others
				}
				tried = append(tried, v)
				if Needs(other) != Needs(cfg) || play(t, other, slow) != before {
					return
				}
			}
			t.Errorf("none of %q changes anything: it isn't a setting, or `under` lacks where it acts", tried)
		})
	}
}

// play runs a policy against a small world of six targets, 900 requests in two
// minutes or more: sessions that grow, a shared beginning, bursts, small caches, two slow
// targets, some without a key, tokens, or patience. It returns a digest of everything
// that the policy has said. Where it is slow, answers take 60 times as long.
func play(t *testing.T, cfg Config, slow bool) uint64 {
	t.Helper()
	w := &turnWorld{rng: rand.New(rand.NewPCG(7, 7)), sum: fnv.New64a(), p: must(t, cfg, seeded(3)), now: time.Unix(1e9, 0), slow: slow}
	for i := range w.held {
		w.held[i] = map[int]int{}
	}
	steps := 900
	if cfg.HotPrefix.Enabled {
		steps = 1500 // popularity takes its time
	}
	for range steps {
		w.step()
	}
	return w.sum.Sum64()
}

type turnRequest struct {
	target                   int
	first, done              time.Time
	sent                     time.Time
	prompt, cached, output   int
	tag                      uint64
	started                  bool
	decoding, context, ahead int
}

type turnWorld struct {
	rng *rand.Rand
	sum interface {
		Write([]byte) (int, error)
		Sum64() uint64
	}
	p     Policy
	now   time.Time
	held  [6]map[int]int // tokens of a session that a target has
	busy  [6]time.Time   // until when it prefills
	open  []*turnRequest
	turns [40]int
	slow  bool
}

func (w *turnWorld) say(list ...any) { fmt.Fprintln(w.sum, list...) }

func (w *turnWorld) step() {
	gap := 160 * time.Millisecond
	if w.now.Unix()/20%3 == 0 { // a burst
		gap = 20 * time.Millisecond
	}
	w.now = w.now.Add(time.Duration(w.rng.ExpFloat64() * float64(gap)))
	w.settle()
	session := w.rng.IntN(len(w.turns))
	if w.rng.IntN(3) == 0 {
		session = w.rng.IntN(4)
	}
	w.turns[session] += 64 + w.rng.IntN(400)
	if w.turns[session] > 6000 {
		w.turns[session] = 100
	}
	req, cands := w.request(session)
	i := w.p.Pick(req, cands)
	w.say(i, req.Branch)
	for k := range cands {
		w.say(math.Float64bits(cands[k].Cost), cands[k].Uncached, cands[k].Prefill)
	}
	why, shed := w.p.Shed(req, cands, i)
	if w.say(shed, why); shed {
		return
	}
	w.p.Placed(req, cands, i)
	w.place(session, req, &cands[i], i)
}

func (w *turnWorld) request(session int) (*Request, []Candidate) {
	n := 128 + w.turns[session]
	req := &Request{Now: w.now, Tokens: n, BlockSize: 16, Priority: w.rng.IntN(3) - 1, MaxOutput: 1000}
	if w.rng.IntN(5) > 0 {
		req.SessionHash = h64(uint64(session) + 99)
	}
	if w.rng.IntN(3) == 0 {
		req.NextTurn = 5 * time.Second
	}
	text := make([]byte, 0, 8*n)
	var h [8]byte
	for b := 0; b < n/16; b++ {
		id := uint64(b + 1) // the shared beginning
		if b >= 8 {
			id = uint64(session+1)<<32 | uint64(b)
		}
		req.Hashes = append(req.Hashes, kv.Hash(h64(id)))
		binary.LittleEndian.PutUint64(h[:], h64(id))
		for range 8 {
			text = append(text, h[:]...)
		}
	}
	req.Text = text
	if w.rng.IntN(10) == 0 {
		req.Hashes = nil
	}
	cands := make([]Candidate, len(w.held))
	for t := range cands {
		w.candidate(session, t, n, req, &cands[t])
	}
	return req, cands
}

func (w *turnWorld) candidate(session, t, n int, req *Request, c *Candidate) {
	*c = Candidate{Target: kv.Target(t), Identity: h64(uint64(t) + 1), Trust: kv.Exact, BlockSize: 16, Blocks: 1500, MaxBatch: 0}
	if t%2 == 1 {
		c.MaxBatch = 2048
	}
	held := 0
	for _, k := range w.held[t] {
		held += k / 16
	}
	c.Held = min(held, c.Blocks)
	l := &c.Load
	for _, r := range w.open {
		if r.target != t {
			continue
		}
		l.Requests++
		l.Prompt += r.prompt
		l.DecodeBlocks += r.prompt / 16
		if r.started {
			l.Decode += r.prompt
			l.Output += r.output / 2
		} else {
			l.Prefilling++
			l.Prefill += r.prompt - r.cached
		}
	}
	l.NewBlocks = n / 16
	l.Wait = max(0, w.busy[t].Sub(w.now))
	c.Engine = kv.Gauge{Running: l.Requests - l.Prefilling, Waiting: l.Prefilling, KVUsage: min(1, float64(l.DecodeBlocks)/1500), At: w.now}
	if w.rng.IntN(4) == 0 {
		c.Engine = kv.Gauge{}
	}
	if req.Hashes == nil {
		return
	}
	has := min(w.held[t][session], n) / 16 * 16
	if has == 0 && len(w.held[t]) > 3 {
		has = 128 // the shared beginning
	}
	switch (session + t) % 5 {
	case 0:
		c.Overlap = kv.Overlap{GPU: int32(has / 32 * 16), Host: int32(has / 4 / 16 * 16), Disk: int32(has / 8 / 16 * 16)}
	case 1:
		c.Overlap = kv.Overlap{GPU: int32(has / 32 * 16), Predicted: int32(has / 2 / 16 * 16)}
	default:
		c.Overlap.GPU = int32(has)
	}
}

// place computes what a real engine would do, two targets slower than the others.
func (w *turnWorld) place(session int, req *Request, c *Candidate, t int) {
	cached := int(c.Overlap.GPU)
	speed := 1e-4
	if t >= 4 {
		speed = 1.8e-4
	}
	start := w.now
	if w.busy[t].After(start) {
		start = w.busy[t]
	}
	took := .01 + speed*float64(req.Tokens-cached)
	r := &turnRequest{target: t, sent: w.now, first: start.Add(time.Duration(took * 1e9)), prompt: req.Tokens, cached: cached, output: 20 + w.rng.IntN(200), tag: req.Tag,
		decoding: c.Load.Requests - c.Load.Prefilling, context: c.Load.Decode, ahead: c.Load.Prefilling}
	w.busy[t] = r.first
	r.done = r.first.Add(time.Duration(r.output) * (10*time.Millisecond + time.Duration(r.decoding)*300*time.Microsecond))
	w.open = append(w.open, r)
	w.held[t][session] = req.Tokens
	if len(w.held[t]) > 9 {
		for s := range len(w.turns) {
			if _, ok := w.held[t][s]; ok && s != session {
				delete(w.held[t], s)
				break
			}
		}
	}
}

// settle tells what has happened until now.
func (w *turnWorld) settle() {
	left := w.open[:0]
	for _, r := range w.open {
		if !r.started && !r.first.After(w.now) {
			r.started = true
			w.p.FirstToken(&kv.FirstToken{Now: r.first, Target: kv.Target(r.target), Prompt: r.prompt, Cached: r.cached, Latency: r.first.Sub(r.sent),
				Alone: r.ahead == 0, Decoding: r.decoding, Context: r.context, Tag: r.tag})
		}
		if r.done.After(w.now) {
			left = append(left, r)
			continue
		}
		streaming := r.done.Sub(r.first)
		if w.slow {
			streaming *= 60
		}
		w.p.Done(&kv.Done{Now: r.done, Target: kv.Target(r.target), Prompt: r.prompt, Output: r.output, Streaming: streaming, Requests: float64(r.decoding + 1), Tokens: float64(r.context + r.prompt)})
	}
	w.open = left
}
