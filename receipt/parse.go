package receipt

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Limits on what a line may say. A log comes from outside.
const (
	maxTokens = 1 << 28 // per prompt or answer
	maxTime   = 1e10    // seconds
	maxTarget = 1 << 16
)

// A FieldError says what is wrong with a line.
type FieldError struct {
	Field string // "" if the line is no JSON object at all
	Msg   string // value and accepted range
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Msg
	}
	return fmt.Sprintf("field %q: %s", e.Field, e.Msg)
}

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Parse reads one line. A header is returned as such, and the Line is empty then.
func Parse(text []byte) (x Line, h *Header, err error) {
	var m struct {
		Header
		Line
	}
	if err := json.Unmarshal(text, &m); err != nil {
		if te := (*json.UnmarshalTypeError)(nil); errors.As(err, &te) {
			return x, nil, wrong(strings.TrimPrefix(strings.TrimPrefix(te.Field, "Line."), "Header."), "is a %s, want a %s", te.Value, te.Type)
		}
		return x, nil, wrong("", "not a line of a receipt log: %v", err)
	}
	if m.Kvasir != "" {
		return x, &m.Header, m.Header.check()
	}
	if err := m.Line.check(); err != nil {
		return x, nil, err
	}
	return m.Line, nil, nil
}

func (h *Header) check() error {
	switch {
	case h.Kvasir != "receipts" || h.Version < 1 || h.Version > Version:
		return wrong("version", "is %d of %.20q, want version 1 to %d of \"receipts\": use the release that wrote it", h.Version, h.Kvasir, Version)
	case h.Start.Year() < 1970 || h.Start.Year() > 2200:
		return wrong("start", "is %v, want a time between 1970 and 2200", h.Start)
	}
	return nil
}

func (x *Line) check() error {
	for _, f := range [...]struct {
		name  string
		value float64
	}{{"at", x.At}, {"took_s", x.Took}, {"first_token_s", x.First}, {"next_turn_s", x.NextTurn}} {
		if !(f.value >= 0 && f.value <= maxTime) {
			return wrong(f.name, "is %v, want seconds between 0 and %v", f.value, maxTime)
		}
	}
	for _, f := range [...]struct {
		name        string
		value, most int
	}{
		{"prompt_tokens", x.Tokens, maxTokens}, {"output_tokens", x.Output, maxTokens}, {"block_size", x.BlockSize, maxTokens},
		{"max_output_tokens", x.MaxOutput, maxTokens}, {"expected_output_tokens", x.Expected, maxTokens}, {"target", x.Target, maxTarget},
		{"candidates_considered", x.Considered, maxTarget}, {"served_prompt_tokens", value(x.ServedPrompt), maxTokens},
		{"served_cached_tokens", value(x.ServedCached), maxTokens},
	} {
		if f.value < 0 || f.value > f.most {
			return wrong(f.name, "is %d, want a number between 0 and %d", f.value, f.most)
		}
	}
	for i := range x.Candidates {
		if t := x.Candidates[i].Target; t < 0 || t > maxTarget {
			return wrong("candidates", "has the target %d, want a number between 0 and %d", t, maxTarget)
		}
	}
	if n := len(x.Blocks); n > 0 && (x.BlockSize == 0 || n > x.Tokens/x.BlockSize) {
		return wrong("blocks", "has %d, but %d tokens have %d full blocks of %d", n, x.Tokens, x.Tokens/max(x.BlockSize, 1), x.BlockSize)
	}
	return nil
}

func value(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}
