package policy

import (
	"math"
	"testing"

	"kvasir/kv"
	"kvasir/policy/learn"
)

// fiftyBlocks is a prompt of 1,600 tokens in blocks of 32.
func fiftyBlocks() *Request {
	req := &Request{Now: t0, Tokens: 1600, BlockSize: 32}
	for k := range 50 {
		req.Hashes = append(req.Hashes, kv.Hash(h64(uint64(k))))
	}
	return req
}

// Four requests of 1,500 tokens fill a cache of 8,192 with their answers: a fifth
// waits for memory, and goes where it doesn't though its prefix isn't there.
func TestMarginalWaitsForMemory(t *testing.T) {
	cfg := named("marginal")
	cfg.Marginal.Coefficients = nominal
	cfg.Marginal.Learn = false
	cfg.Marginal.Output = 400
	cfg.Marginal.Memory = 1
	req := fiftyBlocks()
	full := func() []Candidate {
		cands := fleet(2)
		for i := range cands {
			cands[i].BlockSize, cands[i].Blocks = 32, 256
		}
		cands[0].Overlap.GPU = 1568
		cands[0].Load = kv.Load{Requests: 4, Prompt: 6000, Decode: 6000, DecodeBlocks: 188, NewBlocks: 50}
		return cands
	}
	p := must(t, cfg, lowestIndex)
	cands := full()
	if i := p.Pick(req, cands); i != 1 {
		t.Errorf("goes to %d, which has no room", i)
	}
	need := 188*32. + 50*32 + 5*400
	step := nominal.DecodeStep + 4*nominal.DecodeRequest + 6000*nominal.DecodeToken
	if got, want := cands[0].Terms[0], 400*step*(need/8192-1); math.Abs(got-want) > 1e-9 {
		t.Errorf("waits %v s, want %v", got, want)
	}
	if got, want := cands[0].Terms[3], .3*400*(4*nominal.DecodeRequest+6000*nominal.DecodeToken)*8192/need; math.Abs(got-want) > 1e-9 {
		t.Errorf("decode price %v, want %v", got, want)
	}
	for _, c := range []struct {
		why    string
		change func(c *Candidate)
	}{
		{"its size isn't known", func(c *Candidate) { c.Blocks = 0 }},
		{"its block size isn't known", func(c *Candidate) { c.BlockSize = 0 }},
		{"it has twice the room", func(c *Candidate) { c.Blocks = 512 }},
		{"what is held is evictable", func(c *Candidate) { c.Held, c.Load.DecodeBlocks = 256, 40 }},
		{"they share their prompts with this one", func(c *Candidate) { c.Load.DecodeBlocks, c.Load.NewBlocks = 80, 2 }},
	} {
		cands := full()
		c.change(&cands[0])
		if i := p.Pick(req, cands); i != 0 || cands[0].Terms[0] != 0 {
			t.Errorf("%s: goes to %d, waits %v s at 0", c.why, i, cands[0].Terms[0])
		}
	}
	// The published formula doesn't know of memory.
	plain := cfg
	plain.Marginal.Memory = 0
	if i := must(t, plain, lowestIndex).Pick(req, full()); i != 0 {
		t.Errorf("with memory at price 0 it goes to %d", i)
	}
	// Pages of one token, whose blocks are of 16 for the ledger; a prompt of which
	// only the length is known.
	cands = full()
	cands[0].BlockSize, cands[0].Blocks = 1, 8192
	small := *req
	small.BlockSize = 16
	cands[0].Load.DecodeBlocks, cands[0].Load.NewBlocks = 376, 100
	p.Pick(&small, cands)
	blind := full()
	unknown := *req
	unknown.Hashes, unknown.BlockSize = nil, 0
	blind[0].Load.NewBlocks = 0
	p.Pick(&unknown, blind)
	want := 400 * step * (need/8192 - 1)
	if a, b := cands[0].Terms[0], blind[0].Terms[0]; math.Abs(a-want) > 1e-9 || math.Abs(b-want) > 1e-9 {
		t.Errorf("waits %v and %v s, want %v", a, b, want)
	}
}

// What waits in a full cache is evicted there, so a hit counts for less; not what
// others in flight use too, and not where memory is as short everywhere.
func TestHitsThatMayNotLast(t *testing.T) {
	cfg := named("marginal")
	cfg.Marginal.Coefficients, cfg.Marginal.Learn = nominal, false
	req := fiftyBlocks()
	req.MaxOutput = 1
	full := func() []Candidate {
		cands := fleet(2)
		for i := range cands {
			cands[i].BlockSize, cands[i].Blocks = 32, 250
		}
		cands[0].Overlap.GPU = 1568
		// 450 blocks and 50 of this one, in 250; answers are next to nothing
		cands[0].Load = kv.Load{Requests: 9, Prompt: 14000, Decode: 14000, DecodeBlocks: 450, NewBlocks: 50}
		return cands
	}
	p := must(t, cfg, lowestIndex)
	for _, c := range []struct {
		why    string
		change func(cands []Candidate)
		want   int // cached tokens that count at 0
	}{
		{"twice too much", func([]Candidate) {}, 1568 / 4},
		{"as full elsewhere", func(cands []Candidate) { cands[1].Load = cands[0].Load }, 1568},
		{"half as bad elsewhere", func(cands []Candidate) {
			cands[1].Load = kv.Load{Requests: 9, Prompt: 9000, DecodeBlocks: 293, NewBlocks: 50}
		}, 740},
		{"others use 20 of its blocks", func(cands []Candidate) {
			cands[0].Load.DecodeBlocks, cands[0].Load.NewBlocks = 470, 30
		}, 640 + (1568-640)/4},
		{"it fits", func(cands []Candidate) { cands[0].Blocks = 600 }, 1568},
	} {
		cands := full()
		c.change(cands)
		p.Pick(req, cands)
		if got := 1600 - cands[0].Uncached; math.Abs(float64(got-c.want)) > 8 {
			t.Errorf("%s: %d cached tokens count, want about %d", c.why, got, c.want)
		}
	}
}

// Requests that come one by one find everybody idle. What is new goes where it pushes
// nothing out, unless that engine is clearly slower.
func TestMarginalSpreadsWhatIsNew(t *testing.T) {
	cfg := named("marginal")
	cfg.Marginal.Coefficients = nominal
	free := cfg
	free.Marginal.Evict = 0
	for _, c := range []struct {
		why         string
		cfg         Config
		held, other int // blocks of 256
		prefix      int // tokens on the first
		slower      float64
		want        int
	}{
		{"a full cache and an empty one", cfg, 256, 0, 0, 1, 1},
		{"one a little fuller", cfg, 31, 30, 0, 1, 1},
		{"two full caches", cfg, 256, 256, 0, 1, 0},
		{"the emptier one is clearly slower", cfg, 256, 0, 0, 1.5, 0},
		{"the fuller one has the prefix", cfg, 256, 0, 960, 1, 0},
		{"price 0", free, 256, 0, 0, 1, 0},
	} {
		cands := fleet(2)
		p := must(t, c.cfg, lowestIndex).(*marginal)
		for i := range cands {
			cands[i].BlockSize, cands[i].Blocks = 32, 256
			p.Placed(&Request{}, cands, i)
		}
		k := learn.KnownEngine()
		for n := range 200 {
			for i, slower := range []float64{1, c.slower} {
				u := 500 + n*20
				p.FirstToken(&kv.FirstToken{Target: cands[i].Target, Prompt: u, Alone: true, Latency: seconds(slower * k.PrefillTime(u, 0, 8192, 0, 0)), MaxBatch: 8192})
			}
		}
		cands[0].Held, cands[1].Held, cands[0].Overlap.GPU = c.held, c.other, int32(c.prefix)
		if i := p.Pick(fiftyBlocks(), cands); i != c.want {
			t.Errorf("%s: goes to %d, want %d; costs %v and %v", c.why, i, c.want, cands[0].Cost, cands[1].Cost)
		}
	}
}
