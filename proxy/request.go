package proxy

import (
	"bytes"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
)

// maxSession bounds a session key, in bytes: longer ones are cut.
const maxSession = 256

// maxModel bounds a model's name, in bytes.
const maxModel = 1024

// fields is what is read of a request's body.
type fields struct {
	model    string
	hasModel bool // a string was there, even if empty
	stream   bool
	output   int    // tokens that the client allows, over all choices; 0: not said
	answer   int    // likewise, for one choice
	expected int    // tokens that it expects (nvext.agent_hints.osl), likewise
	priority said   // "priority"
	hint     said   // nvext.agent_hints.priority
	session  string // "field=value", see session
	options  bool   // stream_options was there
	previous string // the stored answer that it builds on (Responses), "" for none
	unstored bool   // "store": false: the answer is not to be kept
	cache    cacheUse
}

// A said is a number that a client may have said.
type said struct {
	said bool
	n    int
}

// saidNumber reads an integer of 32 bits; what is more extreme is the most extreme.
func (c *cursor) saidNumber() said {
	n, ok := c.number()
	return said{ok, max(math.MinInt32+1, min(n, math.MaxInt32))}
}

// sessionRank orders the places that a session key may come from; the lower wins.
var sessionNames = [...]string{"session_id", "metadata.user_id", "prompt_cache_key", "user"}

// readFields reads the fields of a JSON object. Where a name occurs twice the last
// one wins, as in Python's json. It is an error if body isn't one JSON object;
// a field of the wrong type counts as absent: the engine knows better words for
// it. asObject is false if the document is no object.
func readFields(body []byte) (f fields, asObject bool, err error) {
	c := cursor{b: bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))}
	return c.fields()
}

// fields is readFields from c on.
func (c *cursor) fields() (f fields, asObject bool, err error) {
	if !c.open('{') {
		c.skip()
		c.end()
		return f, false, c.Err()
	}
	var maxTokens, maxCompletion, maxOutput, n, osl int
	var session [len(sessionNames)][]byte
	for m := 0; c.more('}', &m); {
		switch name := c.key(); string(name) {
		case "model":
			raw := c.text()
			f.model, f.hasModel = "", raw != nil
			if len(raw) <= maxModel {
				f.model = unescape(raw)
			} else {
				f.model = string(raw[:maxModel]) + "…"
			}
		case "stream":
			f.stream = c.is("true")
		case "stream_options":
			f.options = !c.is("null")
		case "max_tokens":
			maxTokens, _ = c.number()
		case "max_completion_tokens":
			maxCompletion, _ = c.number()
		case "max_output_tokens":
			maxOutput, _ = c.number()
		case "previous_response_id":
			f.previous = storedName(c.text())
		case "store":
			f.unstored = c.is("false")
		case "n":
			n, _ = c.number()
		case "priority":
			f.priority = c.saidNumber()
		case "nvext":
			f.hint, osl = agentHints(c)
		case sessionNames[0]:
			session[0] = c.text()
		case "metadata":
			session[1] = userID(c)
		case sessionNames[2]:
			session[2] = c.text()
		case sessionNames[3]:
			session[3] = c.text()
		default:
			f.cache.field(name, c)
		}
	}
	c.end()
	if c.err != "" {
		return f, true, c.Err()
	}
	choices := min(max(n, 1), 128)
	for _, x := range [...]int{maxCompletion, maxTokens, maxOutput} {
		if x > 0 {
			f.answer = min(x, 1<<30)
			f.output = f.answer * choices
			break
		}
	}
	f.expected = max(0, min(osl, 1<<30)) * choices
	for i, raw := range session {
		if len(raw) > 0 {
			f.session = sessionKey(sessionNames[i], unescape(raw[:min(len(raw), maxSession)]))
			break
		}
	}
	return f, true, nil
}

// userID reads metadata.user_id, which Anthropic's clients fill with user and session.
func userID(c *cursor) (id []byte) {
	if !c.open('{') {
		c.skip()
		return nil
	}
	for m := 0; c.more('}', &m); {
		if string(c.key()) == "user_id" {
			id = c.text()
		} else {
			c.skip()
		}
	}
	return id
}

// agentHints reads nvext.agent_hints, with which Dynamo's clients say how important a
// request is (the more, the higher) and how many tokens its answer may have.
func agentHints(c *cursor) (priority said, osl int) {
	if !c.open('{') {
		c.skip()
		return said{}, 0
	}
	for m := 0; c.more('}', &m); {
		if string(c.key()) != "agent_hints" {
			c.skip()
			continue
		}
		if priority, osl = (said{}), 0; !c.open('{') {
			c.skip()
			continue
		}
		for k := 0; c.more('}', &k); {
			switch string(c.key()) {
			case "priority":
				priority = c.saidNumber()
			case "osl":
				osl, _ = c.number()
			default:
				c.skip()
			}
		}
	}
	return priority, osl
}

// sessionKey names a session after where its key was found, so that a receipt
// shows it.
func sessionKey(from, value string) string {
	if len(value) > maxSession {
		value = value[:maxSession]
	}
	return from + "=" + value
}

// formModel finds the field "model" of a multipart form (audio endpoints).
func formModel(h http.Header, body []byte) (string, bool) {
	typ, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || typ != "multipart/form-data" || params["boundary"] == "" {
		return "", false
	}
	form := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for range 64 {
		part, err := form.NextRawPart()
		if err != nil {
			return "", false
		}
		if part.FormName() == "model" {
			b := make([]byte, maxModel)
			n, _ := part.Read(b)
			return strings.TrimSpace(string(b[:n])), n > 0
		}
	}
	return "", false
}
