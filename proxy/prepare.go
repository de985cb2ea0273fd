package proxy

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/token"
)

// read takes what is needed from the body. It returns what to tell the client if the
// request can't be served by anyone.
func (c *call) read() *problem {
	snap := c.p.fleet.Snapshot()
	switch {
	case c.opaque():
		c.f.model, c.f.hasModel = formModel(c.r.Header, c.body.b)
		if !c.f.hasModel && c.encoded() && soleModel(snap) == "" && len(snap.Groups()) > 0 {
			e := badRequest("unsupported_encoding", "several models are served here, and which one this request is for can't be read in the coding of its body (Content-Encoding): send it plain")
			e.status = http.StatusUnsupportedMediaType
			return e
		}
		if !c.f.hasModel {
			c.f.model = anyModel(snap)
		}
	default:
		f, isObject, err := readFields(c.body.b)
		switch {
		case len(bytes.TrimSpace(c.body.b)) == 0:
			return badRequest("empty_body", "the request has no body: want a JSON object")
		case err != nil:
			return badRequest("invalid_json", "the request's body is not JSON: "+err.Error())
		case !isObject:
			return badRequest("invalid_body", "the request's body is JSON, but not an object")
		}
		c.f = f
		if !f.hasModel || f.model == "" { // vLLM takes its own
			c.f.model = soleModel(snap)
			if c.f.model == "" && len(snap.Groups()) > 0 {
				return badRequest("model_missing", "several models are served here: name one in \"model\"")
			}
		}
	}
	c.route.Model = c.f.model
	return c.hints()
}

// opaque reports whether the body can't or needn't be read as JSON.
func (c *call) opaque() bool {
	if c.encoded() {
		return true
	}
	if c.r.Method == http.MethodPost && (c.rt.post || len(c.body.b) > 0) {
		form := bytes.HasPrefix([]byte(c.r.Header.Get("Content-Type")), []byte("multipart/"))
		return form || !c.rt.post && !looksJSON(c.body.b)
	}
	return len(c.body.b) == 0 || !looksJSON(c.body.b)
}

// encoded reports whether the body is in a coding that isn't read here. "identity" is none.
func (c *call) encoded() bool {
	coding := c.r.Header.Get("Content-Encoding")
	return coding != "" && !strings.EqualFold(strings.TrimSpace(coding), "identity")
}

func looksJSON(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && b[0] == '{'
}

func badRequest(code, message string) *problem {
	return &problem{status: http.StatusBadRequest, typ: "invalid_request_error", code: code, message: message}
}

// soleModel returns the base model that every replica of the fleet serves, if there
// is only one; an engine may give it several names.
func soleModel(snap *fleet.Snapshot) string {
	var sole *fleet.Group
	for _, g := range snap.Groups() {
		switch {
		case g.Model.Parent != "":
		case sole == nil:
			sole = g
		case !slices.Equal(sole.Targets, g.Targets):
			return ""
		}
	}
	if sole == nil {
		return ""
	}
	return sole.Model.ID
}

// anyModel returns the base model with the most targets: where requests go that
// name none.
func anyModel(snap *fleet.Snapshot) string {
	var best *fleet.Group
	for _, g := range snap.Groups() {
		if g.Model.Parent == "" && (best == nil || len(g.Targets) > len(best.Targets)) {
			best = g
		}
	}
	if best == nil {
		return ""
	}
	return best.Model.ID
}

// prepare fills in what the scheduler may know of the request.
func (c *call) prepare() {
	if c.rt.generate || c.rt.endpoint == Passed { // to tokenize or render is no work for the model
		c.route.Bytes = len(c.body.b)
	}
	c.route.Session = c.f.session
	if id := c.r.Header.Get("X-Session-Id"); id != "" {
		c.route.Session = sessionKey("x-session-id", id)
	}
	c.route.ID = c.requestID()
	c.route.Silent = c.rt.generate && !c.f.stream
	c.pin()
	c.stick()
	if !c.rt.generate || c.rt.kind == token.Other || c.r.Method != http.MethodPost {
		c.route.Why = "no prompt is read on this path"
		return
	}
	if c.rt.endpoint == Responses && c.f.previous != "" {
		c.route.Why = "the prompt goes on from a stored answer, which only its engine has"
		return
	}
	if c.p.text {
		c.route.Text = promptText(c.body.b, c.rt.kind, c.p.between)
	}
	if c.p.source == nil {
		c.route.Why = "tokenization is off"
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.r.Context(), c.p.cfg.Tokens)
	res := c.p.source.Tokens(ctx, &token.Request{
		Endpoint: c.rt.kind, Model: c.f.model, Body: c.body.b, Authorization: c.r.Header.Get("Authorization"),
	})
	cancel()
	c.p.stats.tokens.observe(time.Since(began))
	c.tokens(&res)
}

// tokens fills in the prompt. Of several prompts the longest is the one to look
// for in caches; the work of all is booked.
func (c *call) tokens(res *token.Result) {
	if len(res.Prompts) == 0 {
		c.route.Why, c.refused = res.Why, res.Refused
		return
	}
	longest, sum := 0, 0
	for i := range res.Prompts {
		sum += len(res.Prompts[i].IDs)
		if len(res.Prompts[i].IDs) > len(res.Prompts[longest].IDs) {
			longest = i
		}
	}
	key := kv.Key{Salt: res.Salt}
	if g := c.p.fleet.Snapshot().Group(c.f.model); g != nil && g.Model.Parent != "" {
		key.LoRA = c.f.model
	}
	prompt := &res.Prompts[longest]
	c.p.sched.Chains(&c.route.Prompt, c.f.model, prompt.IDs, key, prompt.Extras)
	c.route.Prompt.Tokens = sum
	if c.route.Room = len(prompt.IDs); c.rt.kind != token.Embeddings { // which answer with no token
		c.route.Room += max(c.f.answer, 1)
	}
	c.route.Source = res.Source
	c.route.Unread = c.f.cache.unread(c.rt.kind)
	c.route.Odd = !c.f.cache.shows() || len(res.Prompts) > 1 // of several, usage tells no single one
}

// pin keeps to the rank that the client asks for, on whichever replica. A rank that
// none has, and a header that is no number, are the engine's to judge.
func (c *call) pin() {
	want := c.r.Header.Get(rankHeader)
	if want == "" || headerNames(c.p.cfg.Strip).has(rankHeader) {
		return
	}
	rank, err := strconv.Atoi(want)
	if err != nil {
		return
	}
	snap := c.p.fleet.Snapshot()
	g := snap.Group(c.f.model)
	if g == nil {
		return
	}
	var others []kv.Target
	for _, t := range g.Targets {
		if r := snap.Replica(t); r.FirstRank+r.Rank(t) != rank {
			others = append(others, t)
		}
	}
	if len(others) < len(g.Targets) {
		c.route.Exclude = append(c.route.Exclude, others...)
	}
}
