package trace

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// A WekaFile is one line of the Claude Code file: a session with its sub-agents.
// Block ids are valid in this line only.
type WekaFile struct {
	ID        string
	Tool, Sys int // tokens of tool definitions and system prompt
	Main      []WekaRequest
	Subs      []WekaSub
}

// A WekaSub is a sub-agent.
type WekaSub struct {
	Start    float64 // seconds on the session's clock
	Requests []WekaRequest
}

// A WekaRequest is one request of a recorded session.
type WekaRequest struct {
	T      float64 // seconds since the agent began
	Input  int     // tokens
	Output int     // tokens, at least 1
	Think  float64 // seconds of the client's delay before the request
	API    float64 // seconds that the recorded service took, 0 unknown
	Blocks []uint64
}

// NextWeka returns the next line of a Claude Code file, io.EOF at its end.
func (r *Reader) NextWeka() (WekaFile, error) {
	if r.format != Weka {
		return WekaFile{}, fmt.Errorf("%s is no Claude Code session file but %s", r.name, r.format)
	}
	for {
		line, err := r.next()
		if err != nil {
			return WekaFile{}, err
		}
		f, err := r.weka(line)
		if err == nil {
			return f, nil
		}
		if err = r.bad(err); err != nil {
			return WekaFile{}, err
		}
	}
}

func (r *Reader) weka(line []byte) (WekaFile, error) {
	var m struct {
		ID   string            `json:"id"`
		Tool int               `json:"tool"`
		Sys  int               `json:"sys"`
		Main [][]any6          `json:"main"`
		Subs []json.RawMessage `json:"subs"`
	}
	if err := r.unmarshal(line, &m); err != nil {
		return WekaFile{}, err
	}
	f := WekaFile{ID: m.ID, Tool: m.Tool, Sys: m.Sys}
	if m.Tool < 0 || m.Tool > maxTokens || m.Sys < 0 || m.Sys > maxTokens {
		return f, r.lineError("tool", "tool is %d and sys is %d, want tokens between 0 and %d", m.Tool, m.Sys, maxTokens)
	}
	var err error
	if f.Main, err = r.wekaRequests("main", m.Main); err != nil {
		return f, err
	}
	for i, raw := range m.Subs {
		at := "subs." + strconv.Itoa(i)
		var parts []json.RawMessage
		if err := r.unmarshal(raw, &parts); err != nil || len(parts) != 2 {
			return f, r.lineError(at, "want [start, [requests]]")
		}
		var sub WekaSub
		if err := r.unmarshal(parts[0], &sub.Start); err != nil {
			return f, r.lineError(at, "start: want seconds")
		}
		var reqs [][]any6
		if err := r.unmarshal(parts[1], &reqs); err != nil {
			return f, r.lineError(at, "want requests of six values")
		}
		if sub.Requests, err = r.wekaRequests(at, reqs); err != nil {
			return f, err
		}
		f.Subs = append(f.Subs, sub)
	}
	return f, nil
}

// any6 is one of the six values of a request: a number, or the list of ids.
type any6 struct {
	n   float64
	ids []uint64
}

func (a *any6) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		a.n = math.NaN()
		return json.Unmarshal(b, &a.ids)
	}
	return json.Unmarshal(b, &a.n)
}

func (r *Reader) wekaRequests(field string, in [][]any6) ([]WekaRequest, error) {
	out := make([]WekaRequest, len(in))
	for i := range in {
		at := field + "." + strconv.Itoa(i) + "."
		x, d := in[i], &out[i]
		if len(x) != 6 {
			return nil, r.lineError(field+"."+strconv.Itoa(i), "has %d values, want six: [t, in, out, think, api, [ids]]", len(x))
		}
		var err error
		if d.T, err = r.seconds(at+"t", &x[0].n, 1); err != nil {
			return nil, err
		}
		if d.Input, err = r.tokens(at+"in", &x[1].n, 1); err != nil {
			return nil, err
		}
		if d.Output, err = r.tokens(at+"out", &x[2].n, 0); err != nil {
			return nil, err
		}
		d.Output = max(d.Output, 1)
		if d.Think, err = r.seconds(at+"think", &x[3].n, 1); err != nil {
			return nil, err
		}
		if d.API, err = r.seconds(at+"api", &x[4].n, 1); err != nil {
			return nil, err
		}
		d.Blocks = x[5].ids[:min(len(x[5].ids), d.Input/BlockSize)]
	}
	return out, nil
}
