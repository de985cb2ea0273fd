package policy

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
