package policy

import "kvasir/kv"

// Coefficients say how long an engine takes:
//
//	prefill of u tokens behind h cached ones: u*PrefillToken + u*(h+u/2)*Attention + steps*(Step + step)
//	decode step:                              DecodeStep + n*DecodeRequest + T*DecodeToken =: step (without DecodeStep)
//
// with n requests and T tokens of context in the batch.
type Coefficients struct {
	PrefillToken  float64 `yaml:"prefill_token"`  // s per uncached token
	Attention     float64 `yaml:"attention"`      // s per pair of a new token and one before it
	Step          float64 `yaml:"step"`           // s per step that computes prefill
	DecodeStep    float64 `yaml:"decode_step"`    // s per decode step
	DecodeRequest float64 `yaml:"decode_request"` // s per request in a step
	DecodeToken   float64 `yaml:"decode_token"`   // s per token of context in a step
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

// An engine is what is learned of one target, or of the fleet.
type engine struct {
	identity        uint64
	prefill, decode fit
}

// A calibration learns the coefficients of each target, and of the fleet for the
// targets that are new.
type calibration struct {
	learn   bool
	fleet   engine
	targets [kv.MaxTargets]*engine
	parked  []*engine // of targets that are gone, or loaded and not yet seen
	output  mean
}

// mean is a running mean with a bounded memory, so that it can follow.
type mean struct {
	sum, n float64
}

const meanMemory = 100000

func (m *mean) add(v float64) {
	if m.n >= meanMemory {
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

func newCalibration(given Coefficients, learn bool) *calibration {
	c := &calibration{learn: learn}
	if given != (Coefficients{}) {
		c.fleet.prefill.start(given.prefillPart())
		c.fleet.decode.start(given.decodePart())
	}
	return c
}

// known reports whether prefill times can be told at all.
func (c *calibration) known() bool { return c.fleet.prefill.known() }

// of returns the coefficients of t: its own once there are samples enough, else
// the fleet's, else those of the known engine.
func (c *calibration) of(t kv.Target) Coefficients {
	var own engine
	e := &own
	if int(t) < len(c.targets) && c.targets[t] != nil {
		e = c.targets[t]
	}
	k := nominal.prefillPart()
	scale := 1.0
	switch {
	case e.prefill.known() && e.prefill.n >= minSamples:
		k = e.prefill.k
	case c.fleet.prefill.known():
		k = c.fleet.prefill.k
	}
	if c.fleet.prefill.known() {
		scale = c.fleet.prefill.k[0] / nominal.PrefillToken
	}
	d := nominal.decodePart()
	switch {
	case e.decode.known() && e.decode.n >= minSamples:
		d = e.decode.k
	case c.fleet.decode.known():
		d = c.fleet.decode.k
	default:
		for i := range d {
			d[i] *= scale
		}
	}
	return Coefficients{
		PrefillToken: k[0], Attention: k[1], Step: k[2],
		DecodeStep: d[0], DecodeRequest: d[1], DecodeToken: d[2],
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

// over is how much prefill is overestimated at the start. Too much of it costs
// next to nothing and too little costs up to a third of TTFT (policies.md 8.5).
const over = 2

// firstToken learns from a prefill that had the engine to itself.
func (c *calibration) firstToken(o *FirstToken, budget int) {
	if !c.learn || !o.Alone || o.Prompt <= 0 || o.Latency <= 0 {
		return
	}
	if o.MaxBatch > 0 {
		budget = o.MaxBatch
	}
	hit := min(max(o.Cached, 0), o.Prompt-1)
	x := prefillTerms(o.Prompt-hit, hit, budget)
	// What decodes meanwhile slows each step by an amount that decoding tells.
	k := c.of(o.Target)
	y := o.Latency.Seconds()
	y -= min(y/2, x[2]*(float64(o.Decoding)*k.DecodeRequest+float64(o.Context)*k.DecodeToken))
	c.fleet.prefill.observe(x, y, nominal.prefillPart(), over)
	if e := c.engine(o.Target); e != nil && c.fleet.prefill.known() {
		if !e.prefill.known() && !e.prefill.lost {
			e.prefill.start(c.fleet.prefill.k)
		}
		e.prefill.observe(x, y, nominal.prefillPart(), over)
	}
}

// done learns from the gaps between tokens and the length of the answer.
func (c *calibration) done(o *Done) {
	if o.Failed || o.Output <= 0 {
		return
	}
	c.output.add(float64(o.Output))
	const enough = 8 // gaps: less is noise
	if !c.learn || o.Output <= enough || o.Streaming <= 0 || o.Requests <= 0 {
		return
	}
	// Prefills of others between the tokens are no part of a decode step.
	stream := o.Streaming.Seconds()
	stream -= min(stream*.8, max(0, o.Stalled.Seconds()))
	y := stream / float64(o.Output-1)
	x := [3]float64{1, o.Requests, o.Tokens}
	c.fleet.decode.observe(x, y, nominal.decodePart(), 1)
	if e := c.engine(o.Target); e != nil && c.fleet.decode.known() {
		if !e.decode.known() && !e.decode.lost {
			e.decode.start(c.fleet.decode.k)
		}
		e.decode.observe(x, y, nominal.decodePart(), 1)
	}
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
	FleetSamples   int     // prefills of any target
	MeanOutput     float64 // tokens; 0: no answer seen yet
}

// A Calibrator has learned something about targets.
type Calibrator interface {
	Calibration(t kv.Target) Calibration
}

func (c *calibration) report(t kv.Target) Calibration {
	r := Calibration{Coefficients: c.of(t), Known: c.known(), FleetSamples: c.fleet.prefill.n, MeanOutput: c.output.or(0)}
	if e := c.engine(t); e != nil {
		r.PrefillSamples, r.DecodeSamples = e.prefill.n, e.decode.n
	}
	return r
}
