package learn

// Coefficients say how long an engine takes, in seconds:
//
//	prefill of u tokens behind h cached ones: u*PrefillToken + u*(h+u/2)*Attention + steps*(Step + step)
//	decode step:                              DecodeStep + n*DecodeRequest + T*DecodeToken =: step (without DecodeStep)
//
// with n requests and T tokens of context in the batch.
type Coefficients struct {
	PrefillToken  float64 // s per uncached token
	Attention     float64 // s per pair of a new token and one before it
	Step          float64 // s per step that computes prefill
	DecodeStep    float64 // s per decode step
	DecodeRequest float64 // s per request in a step
	DecodeToken   float64 // s per token of context in a step
}

// KnownEngine returns the coefficients of Llama-3-70B FP8 on 4 H100. Only its shape
// matters: the ratios between coefficients before there are samples enough.
func KnownEngine() Coefficients { return known }

var known = Coefficients{
	PrefillToken: 50e-6, Attention: 1.6e-9, Step: 10e-3,
	DecodeStep: 10e-3, DecodeRequest: 20e-6, DecodeToken: 27e-9,
}

func (c *Coefficients) prefillPart() [3]float64 {
	return [3]float64{c.PrefillToken, c.Attention, c.Step}
}

func (c *Coefficients) decodePart() [3]float64 {
	return [3]float64{c.DecodeStep, c.DecodeRequest, c.DecodeToken}
}

// PrefillTime returns the seconds for u uncached tokens behind hit cached ones, in
// steps of budget tokens, while n requests with t tokens of context decode.
func (c *Coefficients) PrefillTime(u, hit, budget, n, t int) float64 {
	x := prefillTerms(u, hit, budget)
	return x[0]*c.PrefillToken + x[1]*c.Attention + x[2]*(c.Step+float64(n)*c.DecodeRequest+float64(t)*c.DecodeToken)
}

func prefillTerms(u, hit, budget int) [3]float64 {
	fu := float64(u)
	return [3]float64{fu, fu * (float64(hit) + fu/2), float64((u + budget - 1) / budget)}
}

func scale(v *[3]float64, by float64) {
	for i := range v {
		v[i] *= by
	}
}
