package chat

import (
	"strings"

	"kvasir/token/jinja"
)

// message is one message after validation. OpenAI's typed dicts, which pydantic validates against,
// keep unknown keys; vLLM then reads only those below.
type message struct {
	role    string
	content jinja.Value   // missing, None, a str, or a list of valid text parts
	parts   []jinja.Value // the list, when content is one
	calls   []jinja.Value // tool_calls; hasCalls tells an empty list from none
	dict    *jinja.Dict   // as the client wrote it

	hasCalls  bool
	reasoning jinja.Value // a str or missing: reasoning, or the older reasoning_content
}

// readMessage validates v as one of the roles' typed dicts. Shapes that are refused for sure give
// Refused; shapes that pydantic's unions might still take give NeedsRemote.
func (r *request) readMessage(v jinja.Value, m *message) error {
	d, ok := v.AsDict()
	if !ok {
		return refuse("request", "a message is not an object")
	}
	m.dict = d
	role := d.Get("role")
	if role.Kind() != jinja.KindString {
		return refuse("request", "a message has no role")
	}
	m.role, _ = role.AsString()
	for _, key := range []string{"author", "channel", "recipient", "content_type"} {
		if !d.Get(key).IsMissing() { // might be taken for a harmony message
			return remote("a message with the key %s", key)
		}
	}
	if name := d.Get("name"); !name.IsMissing() && name.Kind() != jinja.KindString {
		return remote("a message's name is not a text")
	}
	if task := d.Get("task"); !absent(task) {
		return remote("a message with a task marker")
	}
	if id := d.Get("tool_call_id"); !absent(id) && id.Kind() != jinja.KindString {
		return remote("a message's tool_call_id is not a text")
	}
	if m.role == "developer" && !absent(d.Get("tools")) {
		return remote("tools in a developer message")
	}
	m.reasoning = d.Get("reasoning")
	if absent(m.reasoning) {
		m.reasoning = d.Get("reasoning_content")
	}
	if !absent(m.reasoning) && m.reasoning.Kind() != jinja.KindString {
		return remote("a message's reasoning is not a text")
	}
	if m.reasoning.IsNone() {
		m.reasoning = jinja.Value{}
	}
	if err := m.readContent(d.Get("content")); err != nil {
		return err
	}
	return r.readCalls(m, d.Get("tool_calls"))
}

func (m *message) readContent(c jinja.Value) error {
	m.content = c
	switch c.Kind() {
	case jinja.KindMissing, jinja.KindString:
		return nil
	case jinja.KindNone:
		if m.role != "assistant" && m.role != "function" {
			return refuse("request", "the content of a %s message is null", m.role)
		}
		return nil
	}
	list, ok := c.AsList()
	if !ok {
		return refuse("request", "a message's content is neither a text nor a list")
	}
	m.parts = list
	for _, p := range list {
		d, ok := p.AsDict()
		if !ok {
			if p.Kind() == jinja.KindString {
				if m.known() {
					return refuse("parse", "a part of a %s message is a bare text", m.role)
				}
				return remote("a part of a %s message is a bare text", m.role)
			}
			return refuse("parse", "a part of a message is not an object")
		}
		kind, ok := d.Get("type").AsString()
		if !ok {
			return remote("a part of a message has no type")
		}
		text := d.Get("text")
		switch kind {
		case "text":
			if text.Kind() != jinja.KindString {
				return refuse("parse", "a text part has no text")
			}
			if !absent(d.Get("uuid")) {
				return remote("a text part with a uuid")
			}
		case "refusal":
			if d.Get("refusal").Kind() != jinja.KindString || m.role != "assistant" || !absent(d.Get("uuid")) {
				return remote("a refusal part of a %s message", m.role)
			}
		case "input_text", "output_text":
			if m.known() {
				return refuse("parse", "a part of type %s", kind)
			}
			return remote("a part of type %s", kind)
		default:
			return remote("a part of type %s", kind)
		}
	}
	return nil
}

// known reports the roles whose typed dict takes parts of its own kinds only.
func (m *message) known() bool {
	switch m.role {
	case "developer", "system", "user", "assistant":
		return true
	case "tool":
		return m.dict.Get("tool_call_id").Kind() == jinja.KindString
	}
	return false
}

// readCalls validates tool_calls and puts their keys in the typed dict's order: id, function
// (arguments, name), type, then what else the client wrote.
func (r *request) readCalls(m *message, v jinja.Value) error {
	if absent(v) {
		return nil
	}
	list, ok := v.AsList()
	if !ok {
		return remote("tool_calls is not a list")
	}
	if m.role != "assistant" {
		if len(list) > 0 {
			return remote("tool_calls of a %s message", m.role)
		}
		return nil
	}
	m.hasCalls = true
	m.calls, _ = r.json.List(len(list))
	for i, x := range list {
		c, ok := x.AsDict()
		if !ok {
			return refuse("request", "a tool call is not an object")
		}
		if kind, _ := c.Get("type").AsString(); kind != "function" {
			if kind == "custom" {
				return refuse("parse", "chat completions only support assistant tool_calls of type 'function'.")
			}
			return refuse("request", "a tool call is not of type function")
		}
		f, ok := c.Get("function").AsDict()
		if !ok {
			return refuse("request", "a tool call has no function")
		}
		if c.Get("id").Kind() != jinja.KindString || f.Get("name").Kind() != jinja.KindString ||
			f.Get("arguments").Kind() != jinja.KindString {
			return refuse("request", "a tool call's id, name and arguments must be texts")
		}
		if !c.Get("custom").IsMissing() {
			return remote("a tool call of two kinds")
		}
		m.calls[i] = r.callInOrder(c, f)
	}
	return nil
}

// callInOrder gives a tool call with the keys of the typed dict first, in its order.
func (r *request) callInOrder(c, f *jinja.Dict) jinja.Value {
	fn := r.json.Dict(f.Len())
	fn.Set("arguments", f.Get("arguments"))
	fn.Set("name", f.Get("name"))
	for i := range f.Len() {
		fn.Set(f.At(i))
	}
	out := r.json.Dict(c.Len())
	out.Set("id", c.Get("id"))
	out.Set("function", jinja.DictOf(fn))
	out.Set("type", c.Get("type"))
	for i := range c.Len() {
		if k, v := c.At(i); k != "function" {
			out.Set(k, v)
		}
	}
	return jinja.DictOf(out)
}

// text joins the parts of a content as vLLM's string format does.
func (m *message) text() string {
	if s, ok := m.content.AsString(); ok {
		return s
	}
	var b strings.Builder
	for i, p := range m.parts {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(partText(p))
	}
	return b.String()
}

// partText gives the text of a text or refusal part.
func partText(p jinja.Value) string {
	d, _ := p.AsDict()
	if s, ok := d.Get("text").AsString(); ok {
		if kind, _ := d.Get("type").AsString(); kind == "text" {
			return s
		}
	}
	s, _ := d.Get("refusal").AsString()
	return s
}
