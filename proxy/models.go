package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"kvasir/kv"
	"kvasir/sched"
)

// A model as OpenAI lists it, with vLLM's additions.
type listedModel struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Created     int64   `json:"created"`
	OwnedBy     string  `json:"owned_by"`
	Root        string  `json:"root"`
	Parent      *string `json:"parent"`
	MaxModelLen *int    `json:"max_model_len"`
}

func (p *Proxy) list(m kv.Model) listedModel {
	out := listedModel{
		ID: m.ID, Object: "model", Created: p.started.Unix(), OwnedBy: "kvasir",
		Root: m.ID, Parent: optional(m.Parent),
	}
	if m.MaxLen > 0 {
		out.MaxModelLen = &m.MaxLen
	}
	return out
}

// serveModels answers GET /v1/models with the union over the fleet, adapters
// included, and GET /v1/models/NAME with one of them.
func (p *Proxy) serveModels(w http.ResponseWriter, r *http.Request) {
	snap := p.fleet.Snapshot()
	var v any
	if name, one := strings.CutPrefix(r.URL.Path, "/v1/models/"); one {
		g := snap.Group(name)
		if g == nil {
			p.stats.done(Models, http.StatusNotFound, sched.Open)
			p.refuse(w, openAI, problem{status: http.StatusNotFound, typ: "invalid_request_error", code: "model_not_found", param: "model", message: fmt.Sprintf("model %q is not served here", clip(name, 200))})
			return
		}
		v = p.list(g.Model)
	} else {
		all := make([]listedModel, 0, len(snap.Groups()))
		for _, g := range snap.Groups() {
			all = append(all, p.list(g.Model))
		}
		v = struct {
			Object string        `json:"object"`
			Data   []listedModel `json:"data"`
		}{"list", all}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers only
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	p.stats.done(Models, http.StatusOK, sched.Open)
	w.Write(b)
}
