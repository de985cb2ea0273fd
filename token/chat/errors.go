package chat

import "fmt"

// Refused says that the engine will answer this request with 400: forward it, so that the engine
// says so in its own words.
type Refused struct {
	Stage  string // "request", "parse" or "render", as vLLM gets to it
	Reason string
}

func (e *Refused) Error() string { return "the engine refuses this request: " + e.Reason }

// NeedsRemote says that the prompt can't be made here exactly as the engine makes it: ask the engine's
// render endpoint, or route without tokens.
type NeedsRemote struct{ Reason string }

func (e *NeedsRemote) Error() string { return "needs remote render: " + e.Reason }

func refuse(stage, format string, args ...any) error {
	return &Refused{stage, fmt.Sprintf(format, args...)}
}

func remote(format string, args ...any) error {
	return &NeedsRemote{fmt.Sprintf(format, args...)}
}
