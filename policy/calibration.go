package policy

import (
	"time"

	"kvasir/kv"
)

// Coefficients say how long an engine takes:
//
//	prefill of u tokens behind h cached ones: u*PrefillToken + u*(h+u/2)*Attention + steps*(Step + step)
//	decode step:                              DecodeStep + n*DecodeRequest + T*DecodeToken =: step (without DecodeStep)
//
// with n requests and T tokens of context in the batch.
type Coefficients struct {
	// PrefillToken is the time per uncached token.
	PrefillToken float64 `yaml:"prefill_token" range:"1e-9..1" unit:"s" example:"50e-6"`
	// Attention is the time per pair of a new token and one before it.
	Attention float64 `yaml:"attention" range:"1e-15..1e-3" unit:"s" example:"1.6e-9"`
	// Step is the time per step that computes prefill.
	Step float64 `yaml:"step" range:"1e-9..10" unit:"s" example:"10e-3"`
	// DecodeStep is the time per decode step.
	DecodeStep float64 `yaml:"decode_step" range:"1e-9..10" unit:"s" example:"10e-3"`
	// DecodeRequest is the time per request in a step.
	DecodeRequest float64 `yaml:"decode_request" range:"1e-12..1" unit:"s" example:"20e-6"`
	// DecodeToken is the time per token of context in a step.
	DecodeToken float64 `yaml:"decode_token" range:"1e-15..1e-3" unit:"s" example:"27e-9"`
}

// Known engine: Llama-3-70B FP8 on 4 H100 (experiments.md 2.1). Only its shape
// matters: the ratios between coefficients before there are samples enough.
var nominal = Coefficients{
	PrefillToken: 50e-6, Attention: 1.6e-9, Step: 10e-3,
	DecodeStep: 10e-3, DecodeRequest: 20e-6, DecodeToken: 27e-9,
}

func (c *Coefficients) prefillPart() [3]float64 {
	return [3]float64{c.PrefillToken, c.Attention, c.Step}
}

func (c *Coefficients) decodePart() [3]float64 {
	return [3]float64{c.DecodeStep, c.DecodeRequest, c.DecodeToken}
}

// prefill returns the seconds for u uncached tokens behind hit cached ones, in
// steps of budget tokens, while n requests with t tokens of context decode.
func (c *Coefficients) prefill(u, hit, budget, n, t int) float64 {
	x := prefillTerms(u, hit, budget)
	return x[0]*c.PrefillToken + x[1]*c.Attention + x[2]*(c.Step+float64(n)*c.DecodeRequest+float64(t)*c.DecodeToken)
}

func prefillTerms(u, hit, budget int) [3]float64 {
	fu := float64(u)
	return [3]float64{fu, fu * (float64(hit) + fu/2), float64((u + budget - 1) / budget)}
}

// An engine is what is learned of one target.
type engine struct {
	identity        uint64
	prefill, decode skew
	busy            period
	short           time.Time // when a request was last sent there though memory was short
}

// A period is a busy period of a target (see kv.BusyPeriod), or the rest of a long one. What it computes
// meanwhile is known though nobody can tell whose turn it is: engines compute several
// requests in one step.
type period struct {
	began, from time.Time // from: since when the sums run
	last        time.Time // first token
	pace        float64   // s per token so far
	x           [3]float64
	slowed      float64 // s that what decodes has added, about
	n, all      int     // first tokens since from, and since it began, with those missed before from
}

// longPeriod is how many first tokens are enough for a sample, where prefill is always
// owed. One that is half computed then hardly matters.
const longPeriod = 32

// A calibration learns the coefficients of a fleet, and how much slower or faster
// than that each target is.
type calibration struct {
	learn   bool
	prefill fitted
	decode  fitted
	now     Coefficients // of the fleet
	targets [kv.MaxTargets]*engine
	parked  []*engine // of targets that are gone, or loaded and not yet seen
	output  mean
	joined  int // prefills that others had joined, in a row
}

// mean is a running mean with a bounded memory, so that it can follow.
type mean struct {
	sum, n float64
}

const meanMemory = 100000

func (m *mean) add(v float64) { m.within(v, meanMemory) }

// within adds v to the mean of the last memory values, about.
func (m *mean) within(v, memory float64) {
	if m.n >= memory {
		m.sum -= m.sum / m.n
		m.n--
	}
	m.sum += v
	m.n++
}

func (m *mean) or(start float64) float64 {
	if m.n == 0 {
		return start
	}
	return m.sum / m.n
}

// fitted is a fit of the fleet, moved to the median of its samples.
type fitted struct {
	fit
	off skew
}

func (f *fitted) predict(x [3]float64) float64 { return f.fit.predict(x) * f.off.median() }

func (f *fitted) coefficients() [3]float64 {
	k := f.k
	scale(&k, f.off.median())
	return k
}

// observe learns from y at x on a target whose skew is s (nil: not kept).
func (f *fitted) observe(x [3]float64, y float64, s *skew, shape [3]float64, over float64) {
	factor := 1.0
	if f.known() && f.n >= minSamples { // before that it is an overestimate on purpose
		if s != nil {
			s.observe(y / f.predict(x))
			factor = s.factor()
		}
		f.off.observe(y / factor / f.fit.predict(x))
	}
	f.fit.observe(x, y/factor, shape, over)
	if !f.known() {
		f.off = skew{}
	}
}

func newCalibration(given Coefficients, learn bool) *calibration {
	c := &calibration{learn: learn}
	if given != (Coefficients{}) {
		c.prefill.start(given.prefillPart())
		c.decode.start(given.decodePart())
	}
	c.refresh()
	return c
}

// known reports whether prefill times can be told at all.
func (c *calibration) known() bool { return c.prefill.known() }

// refresh brings now up to date: the coefficients of the known engine until
// prefill is known.
func (c *calibration) refresh() {
	k, d := nominal.prefillPart(), nominal.decodePart()
	if c.prefill.known() {
		k = c.prefill.coefficients()
	}
	switch {
	case !c.prefill.known(): // prices must be of one engine: measured steps beside guessed prefill would outweigh it
	case c.decode.known():
		d = c.decode.coefficients()
	default: // as slow at decoding as at prefill
		scale(&d, k[0]/nominal.PrefillToken)
	}
	c.now = Coefficients{
		PrefillToken: k[0], Attention: k[1], Step: k[2],
		DecodeStep: d[0], DecodeRequest: d[1], DecodeToken: d[2],
	}
}

// of returns the coefficients of t.
func (c *calibration) of(t kv.Target) Coefficients {
	k := c.now
	e := c.engine(t)
	if e == nil {
		return k
	}
	if f := e.prefill.factor(); f != 1 {
		k.PrefillToken *= f
		k.Attention *= f
		k.Step *= f
	}
	if f := e.decode.factor(); f != 1 {
		k.DecodeStep *= f
		k.DecodeRequest *= f
		k.DecodeToken *= f
	}
	return k
}

func scale(v *[3]float64, by float64) {
	for i := range v {
		v[i] *= by
	}
}

// seen makes sure that a target which gets a request has a place to learn in,
// with what was known of it before.
func (c *calibration) seen(t kv.Target, identity uint64) {
	if !c.learn || int(t) >= len(c.targets) || c.targets[t] != nil && c.targets[t].identity == identity {
		return
	}
	c.forget(t)
	for i, e := range c.parked {
		if e.identity == identity {
			c.parked = append(c.parked[:i], c.parked[i+1:]...)
			c.targets[t] = e
			return
		}
	}
	c.targets[t] = &engine{identity: identity}
}

// forget parks what is known of t, should the replica come back.
func (c *calibration) forget(t kv.Target) {
	if int(t) >= len(c.targets) || c.targets[t] == nil {
		return
	}
	if len(c.parked) >= kv.MaxTargets {
		c.parked = c.parked[1:]
	}
	c.parked = append(c.parked, c.targets[t])
	c.targets[t] = nil
}

// over is how much prefill is overestimated at the start. Too little costs up to a
// third of TTFT (policies.md 8.5), but twice the truth costs 4 % where memory is
// scarce (conv, N=4), and the samples err on the long side by themselves.
const over = 1.3

// A request that others have joined before its first token may have been computed
// in the same steps as they, so that its latency is theirs too: in bursts nearly all
// are like that. They are learned from together, as a busy period. Where other routers' or
// silent requests are among them there is no telling how many they were; then they
// teach nothing, unless there is nothing else to learn from: one in maxJoined, and all
// while nothing is known, with what joined counted as computed before.
const (
	joinedShare = .2 // of its own tokens: fewer don't matter
	maxJoined   = 20 // left out in a row
)

// firstToken learns from a prefill that had none before it in the engine's queue, or
// from a whole busy period when that ends.
func (c *calibration) firstToken(o *kv.FirstToken, budget int) {
	if !c.learn || o.FromPeer || o.Prompt <= 0 || o.Latency <= 0 {
		return
	}
	if o.MaxBatch > 0 {
		budget = o.MaxBatch
	}
	hit := min(max(o.Cached, 0), o.Prompt-1)
	own := o.Prompt - hit
	whole := c.period(o, prefillTerms(own, hit, budget))
	if !o.Alone {
		return
	}
	if float64(o.Joined) > joinedShare*float64(own) {
		switch {
		case whole:
			return
		case !c.known():
			own += min(o.Joined, budget)
		default:
			if c.joined++; c.joined <= maxJoined {
				return
			}
		}
	}
	c.joined = 0
	x := prefillTerms(own, hit, budget)
	c.learned(o.Target, x, o.Latency.Seconds(), c.slowed(o, x), 1)
}

// slowed is how long what decodes has held up the steps of x, by what decoding tells.
func (c *calibration) slowed(o *kv.FirstToken, x [3]float64) float64 {
	k := c.of(o.Target)
	return x[2] * (float64(o.Decoding)*k.DecodeRequest + float64(o.Context)*k.DecodeToken)
}

// learned takes n prefills on t that took y seconds for x altogether. Their sum is more
// exact than each would be, but a few of one kind must not outweigh all others.
func (c *calibration) learned(t kv.Target, x [3]float64, y, slowed float64, n int) {
	y -= min(y/2, slowed)
	var target *skew
	if e := c.engine(t); e != nil {
		target = &e.prefill
	}
	if c.known() {
		n = min(n, 4)
	}
	for range n {
		c.prefill.observe(x, y, target, nominal.prefillPart(), over)
	}
	c.refresh()
}

// period adds a first token to the target's busy period, and learns from it at its end. It
// reports whether all first tokens of it so far have been seen, so that there
// will be something to learn.
func (c *calibration) period(o *kv.FirstToken, x [3]float64) bool {
	e := c.engine(o.Target)
	if e == nil {
		return false
	}
	s := &e.busy
	if began := o.Now.Add(-o.Busy.For); !s.began.Equal(began) {
		*s = period{began: began, from: began}
	}
	// Whose first token came sooner after the last one than half its prefill takes, at
	// the pace of the period, was computed in the same steps.
	if s.n > 0 {
		s.pace = s.last.Sub(s.from).Seconds() / s.x[0]
	}
	if s.all > 0 && o.Now.Sub(s.last).Seconds() < s.pace*x[0]/2 {
		x[2]--
	}
	for i := range x {
		s.x[i] += x[i]
	}
	s.slowed += c.slowed(o, x)
	s.n++
	s.all++
	s.last = o.Now
	whole := s.all == o.Busy.Admitted-o.Busy.Owing
	if o.Busy.Owing > 0 && s.n < longPeriod {
		return whole
	}
	// A single one is for firstToken. Who waits for memory says nothing of prefill.
	if whole && s.n > 1 && e.short.Before(s.from) {
		c.learned(o.Target, s.x, o.Now.Sub(s.from).Seconds(), s.slowed, s.n)
	}
	*s = period{began: s.began, from: o.Now, last: o.Now, pace: s.pace, all: o.Busy.Admitted - o.Busy.Owing}
	return whole
}

// done learns from the gaps between tokens and the length of the answer.
func (c *calibration) done(o *kv.Done) {
	if o.Failed || o.FromPeer || o.Output <= 0 {
		return
	}
	c.output.add(float64(o.Output))
	// Prefills of others between the tokens are no part of a decode step, nor is
	// the token that the last step of each has made beside.
	gaps := o.Output - 1 - o.Prefills
	const enough = 8 // less is noise
	if !c.learn || gaps < enough || o.Streaming <= 0 || o.Requests <= 0 {
		return
	}
	stream, stalled := o.Streaming.Seconds(), max(0, o.Stalled.Seconds())
	if stalled > .8*stream { // what is left is mostly the error of the prediction
		return
	}
	y := (stream - stalled) / float64(gaps)
	x := [3]float64{1, o.Requests, o.Tokens}
	var own *skew
	if e := c.engine(o.Target); e != nil {
		own = &e.decode
	}
	c.decode.observe(x, y, own, nominal.decodePart(), 1)
	c.refresh()
}

func (c *calibration) engine(t kv.Target) *engine {
	if int(t) >= len(c.targets) {
		return nil
	}
	return c.targets[t]
}

// A Calibration is what a policy has learned of a target, for receipts and
// metrics.
type Calibration struct {
	Coefficients
	// Known: the coefficients are of this fleet, configured or measured; false:
	// nothing is known yet, and the policy counts tokens.
	Known          bool
	PrefillSamples int // of the target itself
	DecodeSamples  int
	PrefillFactor  float64 // how much slower the target is than the fleet, 1 while that isn't clear
	DecodeFactor   float64
	FleetSamples   int     // prefills of any target, since the last start of the fit
	MeanOutput     float64 // tokens; 0: no answer seen yet
}

// A Calibrator has learned something about targets.
type Calibrator interface {
	Calibration(t kv.Target) Calibration
}

func (c *calibration) report(t kv.Target) Calibration {
	r := Calibration{Coefficients: c.of(t), Known: c.known(), FleetSamples: c.prefill.n, MeanOutput: c.output.or(0), PrefillFactor: 1, DecodeFactor: 1}
	if e := c.engine(t); e != nil {
		r.PrefillSamples, r.DecodeSamples = e.prefill.n, e.decode.n
		r.PrefillFactor, r.DecodeFactor = e.prefill.factor(), e.decode.factor()
	}
	return r
}
