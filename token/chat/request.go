package chat

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"kvasir/token/jinja"
)

// request is the body of /v1/chat/completions as vLLM's pydantic models leave it
// (entrypoints/openai/chat_completion/protocol.py, 0.32), as far as it changes the prompt.
type request struct {
	json      jinja.Parser
	fields    *jinja.Dict
	messages  []message
	tools     []jinja.Value // re-serialised; nil when there are none
	kwargs    *jinja.Dict   // chat_template_kwargs; nil when absent
	documents jinja.Value   // a list, or None
	effort    string        // reasoning_effort; "" when absent
	addGen    bool
	cont      bool
	special   bool
	echo      bool
	template  string // chat_template of the request
	toolsNone bool   // tool_choice is "none"
	salt      string
	truncate  Truncation
	size      int // of the body
}

// maxBody bounds a request; the largest context windows need less.
const maxBody = 256 << 20

var requests = sync.Pool{New: func() any { return new(request) }}

// newRequest gives an empty request; release ends its use, and that of all its values.
func newRequest() *request {
	r := requests.Get().(*request)
	messages, parser := r.messages[:0], r.json
	*r = request{addGen: true, documents: jinja.None, messages: messages, json: parser}
	return r
}

func (r *request) release() {
	if len(r.messages) > 10_000 {
		return // let the collector have it
	}
	clear(r.messages)
	r.fields, r.tools, r.kwargs, r.documents = nil, nil, nil, jinja.None
	r.json.Reset()
	requests.Put(r)
}

// parse reads a body.
func (r *request) parse(body []byte) error {
	if len(body) > maxBody {
		return remote("a body of %d bytes; at most %d are read here", len(body), maxBody)
	}
	// The body isn't copied: values lie in it. What leaves this package is a copy.
	body = trimBOM(body)
	v, err := r.json.Parse(unsafe.String(unsafe.SliceData(body), len(body)))
	if err != nil {
		var je *jinja.JSONError
		if errors.As(err, &je) && je.Beyond {
			return remote("%v", err)
		}
		return refuse("request", "%v", err)
	}
	fields, ok := v.AsDict()
	if !ok {
		return refuse("request", "the body is not a JSON object")
	}
	r.fields, r.size = fields, len(body)
	for _, step := range []func() error{r.readSwitches, r.readMessages, r.readTools, r.readKwargs, r.readTruncation} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func trimBOM(b []byte) []byte {
	if len(b) >= 3 && b[0] == 0xef && b[1] == 0xbb && b[2] == 0xbf {
		return b[3:]
	}
	return b
}

// readSwitches reads the plain fields.
func (r *request) readSwitches() error {
	for _, f := range []struct {
		name string
		to   *bool
	}{
		{"add_generation_prompt", &r.addGen}, {"continue_final_message", &r.cont},
		{"add_special_tokens", &r.special}, {"echo", &r.echo},
	} {
		v := r.fields.Get(f.name)
		if v.IsMissing() {
			continue
		}
		b, ok := v.AsBool()
		if !ok { // pydantic also takes 1, "yes", ...
			return remote("%s is not true or false", f.name)
		}
		*f.to = b
	}
	if r.cont && r.addGen && !r.fields.Get("add_generation_prompt").IsMissing() {
		return refuse("request", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
	}
	if v := r.fields.Get("reasoning_effort"); !absent(v) {
		s, _ := v.AsString()
		switch s {
		case "none", "minimal", "low", "medium", "high", "xhigh", "max":
			r.effort = s
		default:
			return refuse("request", "reasoning_effort is not one of none, minimal, low, medium, high, xhigh, max")
		}
	}
	if v := r.fields.Get("cache_salt"); !absent(v) {
		s, ok := v.AsString()
		if !ok || s == "" {
			return refuse("request", "cache_salt is not a text of 1 to 1024 characters")
		}
		r.salt = strings.Clone(s)
	}
	if v := r.fields.Get("chat_template"); !absent(v) {
		s, ok := v.AsString()
		if !ok {
			return refuse("request", "chat_template is not a text")
		}
		r.template = s
	}
	if kv, ok := r.fields.Get("kv_transfer_params").AsDict(); ok && !absent(kv.Get("prompt_token_ids")) {
		return remote("kv_transfer_params brings the prompt's token ids")
	}
	if d := r.fields.Get("documents"); !absent(d) {
		list, ok := d.AsList()
		if !ok {
			return refuse("request", "documents is not a list")
		}
		for _, x := range list {
			doc, ok := x.AsDict()
			if !ok {
				return refuse("request", "a document is not an object")
			}
			for i := range doc.Len() {
				if _, val := doc.At(i); val.Kind() != jinja.KindString {
					return refuse("request", "a document's value is not a text")
				}
			}
		}
		r.documents = d
	}
	return nil
}

func absent(v jinja.Value) bool { return v.IsMissing() || v.IsNone() }

func (r *request) readMessages() error {
	list, ok := r.fields.Get("messages").AsList()
	if !ok {
		return refuse("request", "messages is not a list")
	}
	r.messages = slices.Grow(r.messages[:0], len(list))[:len(list)]
	clear(r.messages)
	for i, v := range list {
		if err := r.readMessage(v, &r.messages[i]); err != nil {
			return err
		}
	}
	return nil
}

// readTools re-serialises the tools as ChatCompletionToolsParam.model_dump does: the model's keys in
// the model's order, unknown ones dropped, parameters as the client wrote them.
func (r *request) readTools() error {
	if s, _ := r.fields.Get("tool_choice").AsString(); s == "none" {
		r.toolsNone = true
	}
	v := r.fields.Get("tools")
	if absent(v) {
		if c := r.fields.Get("tool_choice"); !absent(c) && !r.toolsNone {
			return refuse("request", "When using `tool_choice`, `tools` must be set.")
		}
		return nil
	}
	list, ok := v.AsList()
	if !ok {
		return refuse("request", "tools is not a list")
	}
	if len(list) == 0 {
		return refuse("request", "`tools` must not be an empty array.")
	}
	r.tools, _ = r.json.List(len(list))
	for i, t := range list {
		out, err := r.readTool(t)
		if err != nil {
			return err
		}
		r.tools[i] = out
	}
	return nil
}

func (r *request) readTool(v jinja.Value) (jinja.Value, error) {
	t, ok := v.AsDict()
	if !ok {
		return v, refuse("request", "a tool is not an object")
	}
	if k := t.Get("type"); !k.IsMissing() {
		if s, _ := k.AsString(); s != "function" {
			return v, refuse("request", "a tool's type is not \"function\"")
		}
	}
	f, ok := t.Get("function").AsDict()
	if !ok {
		return v, refuse("request", "a tool has no function")
	}
	name := f.Get("name")
	if name.Kind() != jinja.KindString {
		return v, refuse("request", "a tool's function has no name")
	}
	out := r.json.Dict(5)
	out.Set("name", name)
	desc := f.Get("description")
	if !absent(desc) && desc.Kind() != jinja.KindString {
		return v, refuse("request", "a tool's description is not a text")
	}
	out.Set("description", orNone(desc))
	params := f.Get("parameters")
	if !absent(params) && params.Kind() != jinja.KindDict {
		return v, refuse("request", "a tool's parameters are not an object")
	}
	out.Set("parameters", orNone(params))
	flag := func(d *jinja.Dict, key string) (jinja.Value, error) {
		b := d.Get(key)
		if absent(b) || b.Kind() == jinja.KindBool {
			return orNone(b), nil
		}
		return b, remote("%s of a tool is not true or false", key)
	}
	strict, err := flag(f, "strict")
	if err != nil {
		return v, err
	}
	if !strict.IsNone() {
		out.Set("strict", strict)
	}
	inner, err := flag(f, "defer_loading")
	if err != nil {
		return v, err
	}
	outer, err := flag(t, "defer_loading")
	if err != nil {
		return v, err
	}
	if inner.IsNone() {
		inner = outer
	}
	if !inner.IsNone() {
		out.Set("defer_loading", inner)
	}
	tool := r.json.Dict(3)
	tool.Set("type", jinja.Str("function"))
	tool.Set("function", jinja.DictOf(out))
	if !outer.IsNone() {
		tool.Set("defer_loading", outer)
	}
	return jinja.DictOf(tool), nil
}

func orNone(v jinja.Value) jinja.Value {
	if v.IsMissing() {
		return jinja.None
	}
	return v
}

func (r *request) readKwargs() error {
	v := r.fields.Get("chat_template_kwargs")
	if absent(v) {
		return nil
	}
	d, ok := v.AsDict()
	if !ok {
		return refuse("request", "chat_template_kwargs is not an object")
	}
	r.kwargs = d
	return nil
}

// Truncation is what the request asks to keep of its prompt.
type Truncation struct {
	Keep int64  // tokens; -1 means as many as the context takes; see Set
	Side string // "left" keeps the last tokens, "right" the first; "" is the engine's default, left
	Set  bool
	// Output is max_completion_tokens or max_tokens: where it is not zero, -1 leaves one token of the
	// context for output.
	Output int64
}

func (r *request) readTruncation() error {
	count := func(name string, low int64) (int64, bool, error) {
		v := r.fields.Get(name)
		if absent(v) {
			return 0, false, nil
		}
		n, ok := v.AsInt()
		if !ok {
			return 0, false, remote("%s is not an integer", name)
		}
		if n < low {
			return 0, false, refuse("request", "%s is %d; at least %d is accepted", name, n, low)
		}
		return n, true, nil
	}
	out, set, err := count("max_completion_tokens", math.MinInt64)
	if err != nil {
		return err
	}
	if !set {
		if out, _, err = count("max_tokens", math.MinInt64); err != nil {
			return err
		}
	}
	r.truncate.Output = out
	if r.truncate.Keep, r.truncate.Set, err = count("truncate_prompt_tokens", -1); err != nil {
		return err
	}
	if v := r.fields.Get("truncation_side"); !absent(v) {
		s, _ := v.AsString()
		if s != "left" && s != "right" {
			return refuse("request", "truncation_side is not left or right")
		}
		r.truncate.Side = s
	}
	return nil
}

// Apply cuts ids as vLLM does after tokenization. contextLen is the model's --max-model-len. The
// result shares ids' memory. A prompt that does not fit is refused by the engine.
func (t Truncation) Apply(ids []uint32, contextLen int) ([]uint32, error) {
	if t.Set {
		keep := int(min(t.Keep, math.MaxInt32))
		if keep > contextLen {
			return nil, refuse("render", "truncate_prompt_tokens=%d cannot be greater than max_model_len=%d", keep, contextLen)
		}
		if keep < 0 {
			if keep = contextLen; t.Output != 0 {
				keep = max(0, contextLen-1)
			}
		}
		switch {
		case len(ids) <= keep:
		case t.Side == "right":
			ids = ids[:keep]
		default:
			ids = ids[len(ids)-keep:]
		}
	}
	if len(ids) > contextLen {
		return nil, refuse("render", "the prompt has %d tokens, the model's context %d", len(ids), contextLen)
	}
	return ids, nil
}
