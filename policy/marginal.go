package policy

import (
	"time"

	"kvasir/kv"
	"kvasir/policy/learn"
)

// Marginal configures `marginal`.
type Marginal struct {
	// Kappa is the price of a second of prefill to those who come later. Above .5 to 2 only
	// together with Delta and Omega.
	Kappa float64 `yaml:"kappa" default:"1" range:"0..100"`
	// Delta is the weight of how much slower this request decodes among the others.
	Delta float64 `yaml:"delta" default:"0.3" range:"0..100"`
	// Omega is the weight of how much slower it makes the others decode.
	Omega float64 `yaml:"omega" default:"0.3" range:"0..100"`
	// DecodeTop is what Delta and Omega rise to where first tokens are a small part of what
	// requests take, as in rollouts, and Sigma with them; not above them: all are constant.
	DecodeTop float64 `yaml:"decode_top" default:"1" range:"0..100"`
	// Sigma is the price of a second of prefill to each request in flight.
	Sigma float64 `yaml:"sigma" range:"0..100"`
	// Evict is the price of writing tokens into a full cache, for what they push out, in
	// parts of the prefill of as many; into one half full, half as much.
	Evict float64 `yaml:"evict" default:"0.25" range:"0..100"`
	// Memory is the price of a second of waiting for KV memory: below 1, as a move costs
	// others the blocks that it pushes out (docs/notes/0006). 0: as if there were always
	// room, as in the published formula.
	Memory float64 `yaml:"memory" default:"0.3" range:"0..100"`
	// HostWeight is the worth of a token held on host, against one on GPU.
	HostWeight float64 `yaml:"host_cache_hit_weight" default:"0.75" range:"0..1"`
	// DiskWeight is the worth of a token held on disk, against one on GPU.
	DiskWeight float64 `yaml:"disk_cache_hit_weight" default:"0.25" range:"0..1"`
	// Output is how long an answer is expected to be, before the first one has ended.
	Output int `yaml:"expected_output" default:"200" range:"1..1Mi" unit:"tokens"`
	// Budget is how much an engine computes in a step, where the engine doesn't say.
	Budget int `yaml:"step_tokens" default:"8192" range:"1..16Mi" unit:"tokens"`
	// Coefficients are where learning starts, or what is used without it. Give all or none.
	Coefficients Coefficients `yaml:"coefficients" optional:"true"`
	// Learn fits the coefficients of each target to its first tokens and answers.
	Learn bool `yaml:"learn" default:"true"`
}

// marginal prices each target in the seconds that the request adds to the world if
// it is served there: docs/cost.md has each term with its reason, and where it is
// wrong. The words are those of the settings and of a receipt's terms:
//
//	cost    = wait + prefill + burden + decode + others
//	wait    = backlog + memory*memory_wait
//	prefill = uncached*prefill_token + uncached*(hit + uncached/2)*attention
//	          + steps*(step + decoding_context*decode_token + decoding*decode_request)
//	burden  = prefill*(kappa + sigma*in_flight) + evict*fullness*uncached*prefill_token
//	decode  = delta * share * output * (context*decode_token + in_flight*decode_request)
//	others  = omega * share * output * in_flight * (prompt*decode_token + decode_request)
//
// Costs within 1e-12 s are tied, and a tie is broken by a draw.
//
// Coefficients are learned from first tokens and gaps (package learn). While nothing
// is known of the fleet's speed there is no clock: the tokens owed stand for the
// backlog, at the price of the known engine, so that the cost is one of tokens.
type marginal struct {
	Basic
	cfg  Marginal
	cal  *learn.Fleet
	mix  mix
	intn func(int) int
}

func newMarginal(cfg Marginal, intn func(int) int) *marginal {
	return &marginal{cfg: cfg, cal: learn.NewFleet(learn.Coefficients(cfg.Coefficients), cfg.Learn), intn: intn}
}

func (p *marginal) Terms() ([]string, string) {
	return []string{"wait", "prefill", "burden", "decode", "others"}, "s"
}

func (p *marginal) Pick(req *Request, cands []Candidate) int {
	at := p.prices(req, cands)
	for i := range cands {
		p.price(req, &cands[i], &at)
	}
	return lowest(cands, 1e-12, p.intn)
}

// prices are what all candidates of a request have in common.
type prices struct {
	output              float64 // expected tokens of the answer
	room                float64 // the largest memory share among them
	sigma, delta, omega float64 // at the mix at hand
}

func (p *marginal) prices(req *Request, cands []Candidate) prices {
	c := &p.cfg
	at := prices{
		output: p.expect(req), room: 1,
		sigma: p.mix.flightPrice(c.Sigma, c.Delta, c.DecodeTop),
		delta: p.mix.decodePrice(c.Delta, c.DecodeTop),
		omega: p.mix.decodePrice(c.Omega, c.DecodeTop),
	}
	if c.Memory > 0 {
		at.room = roomiest(req, cands, at.output)
	}
	return at
}

// expect returns how many tokens the answer is expected to have. The mean is
// enough: true lengths were no better (docs/cost.md, "The formula").
func (p *marginal) expect(req *Request) float64 {
	e := p.cal.Output(float64(p.cfg.Output))
	if req.MaxOutput > 0 {
		e = min(e, float64(req.MaxOutput))
	}
	return e
}

func (p *marginal) price(req *Request, c *Candidate, at *prices) {
	k, l := p.cal.Of(c.Target), &c.Load
	prompt := tokensOf(req)
	hit, share := p.hit(req, c, at)
	uncached := prompt - hit
	budget := p.cfg.Budget
	if c.MaxBatch > 0 {
		budget = c.MaxBatch
	}
	inFlight := float64(l.Requests)
	prefill := k.PrefillTime(uncached, hit, budget, l.Requests-l.Prefilling, l.Decode)
	backlog := l.Wait.Seconds()
	c.Uncached = uncached
	c.Prefill = time.Duration(min(prefill, maxPrefill)*1e9 + .5)
	if !p.cal.Known() {
		backlog = float64(l.Prefill) * k.PrefillToken
		c.Prefill = 0
	}
	c.Terms = [MaxTerms]float64{
		backlog + p.cfg.Memory*memoryWait(&k, l, share, at.output),
		prefill,
		prefill*(p.cfg.Kappa+at.sigma*inFlight) + p.cfg.Evict*fullness(c)*float64(uncached)*k.PrefillToken,
		share * at.delta * at.output * (k.DecodeToken*float64(l.Prompt) + k.DecodeRequest*inFlight),
		share * at.omega * at.output * inFlight * (k.DecodeToken*float64(prompt) + k.DecodeRequest),
	}
	c.Cost = c.Terms[0] + c.Terms[1] + c.Terms[2] + c.Terms[3] + c.Terms[4]
}

// maxPrefill bounds what the ledger is told, in seconds.
const maxPrefill = 3600

// hit returns how many of the prompt's tokens c need not compute, as many of those of
// lower tiers as they are worth, and how far its memory reaches.
func (p *marginal) hit(req *Request, c *Candidate, at *prices) (hit int, share float64) {
	gpu, host, disk := heldBy(c, true)
	hit = gpu + int(p.cfg.HostWeight*float64(host)+p.cfg.DiskWeight*float64(disk))
	hit = max(0, min(hit, tokensOf(req)-1))
	if p.cfg.Memory == 0 {
		return hit, 1
	}
	share = memoryShare(req, c, at.output)
	return surviving(req, c, hit, share, at.room), share
}

func (p *marginal) Placed(req *Request, cands []Candidate, i int) {
	c := &cands[i]
	p.cal.Seen(c.Target, identity(c))
	if memoryShare(req, c, p.expect(req)) < 1 {
		p.cal.Short(c.Target, req.Now)
	}
}

func (p *marginal) FirstToken(o *kv.FirstToken) {
	p.cal.FirstToken(o, p.cfg.Budget)
	p.mix.firstToken(o)
}

func (p *marginal) Done(o *kv.Done) {
	p.cal.Done(o)
	p.mix.done(o)
}

func (p *marginal) Forget(t kv.Target) { p.cal.Forget(t) }

func (p *marginal) Learned(t kv.Target) (learn.Learned, bool) { return p.cal.Learned(t), true }

func (p *marginal) AppendState(dst []byte) []byte { return p.cal.AppendState(dst) }
func (p *marginal) LoadState(src []byte) error    { return p.cal.LoadState(src) }
