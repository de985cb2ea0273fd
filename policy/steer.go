package policy

import (
	"math"
	"time"

	"kvasir/kv"
)

// Steer configures `steer`. The rest it shares with `marginal`, whose prices kappa,
// sigma, delta and omega don't reach it. Its weights for decoding are its own, and its
// sigma lower than published (.03, .3, .3): with those the slowest 1 % of long
// conversations took up to 13 % longer than under marginal (docs/notes/0006).
type Steer struct {
	// Sigma is the price of a second of prefill to each request in flight.
	Sigma float64 `yaml:"sigma" default:"0.02" range:"0..100"`
	// Delta is the weight of how much slower this request decodes among the others.
	Delta float64 `yaml:"delta" default:"0.5" range:"0..100"`
	// Omega is the weight of how much slower it makes the others decode.
	Omega float64 `yaml:"omega" default:"0.2" range:"0..100"`
	// Phi is the weight of the waiting of those who come back.
	Phi float64 `yaml:"phi" default:"0.3" range:"0..100"`
	// Eta is the price of a target to which one session is expected back.
	Eta float64 `yaml:"eta" default:"0.03" range:"0..100" unit:"s"`
	// MaxCongestion bounds the price of a second of prefill to those who come later.
	MaxCongestion float64 `yaml:"max_congestion" default:"3" range:"0..100"`
	// MaxRegret bounds what evictions add to that price.
	MaxRegret float64 `yaml:"max_regret" default:"1" range:"0..100"`
}

// steer is marginal with foresight: it prices what a request does to the sessions
// that will come back to the target, and its price of prefill follows the fleet's
// load and what is lost by evictions instead of being fixed (docs/cost.md, "steer").
//
//	cost      = that of marginal + phi*(delay(wait + prefill) - delay(wait)) + eta*returns
//	delay(b)  = sum over returns: chance * min(b - time, cost of moving)
//	returns   = sum over returns: chance
//	kappa     = min(max_congestion, load/max(.1, 1-load)) + min(max_regret, regretted/written)
//
// Unsafe where caches are scarce: on some such workloads it is behind marginal.
type steer struct {
	marginal
	price   Steer
	returns *returns

	rho     float64
	last    time.Time
	regret  float64   // blocks asked for that had been there and are nowhere now
	written float64   // blocks
	seen    []kv.Hash // of blocks, a sample of them, by hash

	// among says how many targets there were to choose from when this one last was
	// one of them.
	among [kv.MaxTargets]int32
}

const seenBlocks = 1 << 18

func newSteer(base Marginal, cfg Steer, intn func(int) int) *steer {
	base.Kappa, base.Sigma, base.Delta, base.Omega = 0, cfg.Sigma, cfg.Delta, cfg.Omega
	return &steer{marginal: *newMarginal(base, intn), price: cfg, returns: newReturns(), seen: make([]kv.Hash, seenBlocks)}
}

func (p *steer) Terms() ([]string, string) {
	return []string{"wait", "prefill", "burden", "decode", "others", "returns"}, "s"
}

func (p *steer) kappa() float64 {
	k := min(p.price.MaxCongestion, p.rho/max(.1, 1-p.rho))
	if p.written > 0 {
		k += min(p.price.MaxRegret, p.regret/p.written)
	}
	return k
}

func (p *steer) Pick(req *Request, cands []Candidate) int {
	at := p.prices(req, cands)
	kappa := p.kappa()
	own := p.returns.find(req.Hashes)
	for i := range cands {
		c := &cands[i]
		p.marginal.price(req, c, &at)
		wait, prefill := c.Terms[0], c.Terms[1]
		burden := prefill * kappa
		c.Terms[2] += burden
		cost, expected := p.returns.burden(c.Target, own, wait, wait+prefill)
		c.Terms[5] = p.price.Phi*cost + p.price.Eta*expected
		c.Cost += burden + c.Terms[5]
	}
	return lowest(cands, 1e-12, p.intn)
}

func (p *steer) Placed(req *Request, cands []Candidate, i int) {
	p.marginal.Placed(req, cands, i)
	c := &cands[i]
	if !p.last.IsZero() {
		if dt := req.Now.Sub(p.last).Seconds(); dt > 0 {
			p.rho *= math.Exp(-dt / 60)
			fade := math.Exp(-dt / 300)
			p.regret *= fade
			p.written *= fade
		}
	}
	p.last = req.Now
	// A placement with one candidate is no choice: a peer's, or one that is pinned.
	// It says nothing of the size of the fleet, nor of who else holds the prompt.
	if len(cands) > 1 {
		for k := range cands {
			p.among[cands[k].Target] = int32(len(cands))
		}
	}
	n := max(1, float64(p.among[c.Target]))
	p.rho += c.Prefill.Seconds() / (60 * n)
	if len(req.Hashes) == 0 {
		return
	}
	if len(cands) > 1 {
		p.look(req, cands, i)
	}
	move := infinity
	for k := range cands {
		if k != i {
			move = min(move, cands[k].Terms[1])
		}
	}
	if move == infinity { // as if nobody else held anything of it
		k := p.cal.Of(c.Target)
		move = k.PrefillTime(tokensOf(req), 0, p.cfg.Budget, 0, 0)
	}
	req.Tag = p.returns.placed(req.Now, p.returns.find(req.Hashes), req.Hashes[len(req.Hashes)-1], c.Target, move, req.NextTurn)
}

// look counts blocks that are written now, and those among them that nobody has
// though they were asked for before. Of small blocks it looks at a sample.
func (p *steer) look(req *Request, cands []Candidate, i int) {
	size := max(req.BlockSize, 1)
	most, mine := 0, 0
	for k := range cands {
		gpu, host, disk := heldBy(&cands[k], true)
		held := (gpu + host + disk + size - 1) / size
		most = max(most, held)
		if k == i {
			mine = held
		}
	}
	every := uint64(max(1, 512/size))
	for k := min(mine, len(req.Hashes)); k < len(req.Hashes); k++ {
		x := h64(uint64(req.Hashes[k]))
		if x%every != 0 {
			continue
		}
		p.written++
		s := &p.seen[x/every%seenBlocks]
		if k >= most && *s == req.Hashes[k] {
			p.regret++
		}
		*s = req.Hashes[k]
	}
}

func (p *steer) Done(o *kv.Done) {
	p.marginal.Done(o)
	p.returns.ended(o.Now, o.Tag)
}

func (p *steer) Forget(t kv.Target) {
	p.marginal.Forget(t)
	p.returns.forget(t)
}
