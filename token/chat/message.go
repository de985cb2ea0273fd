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
		if m.role != "assistant" {
			return refuse("request", "the content of a %s message is null", m.role)
		}
		return nil
	}
	list, ok := c.AsList()
	if !ok {
		return remote("a message's content is neither a text nor a list")
	}
	// Whether pydantic takes an odd part depends on which of sixteen typed dicts matches its message
	// best, and that on the message's other keys: the engine shall say.
	m.parts = list
	for _, p := range list {
		d, ok := p.AsDict()
		if !ok {
			return remote("a part of a %s message is no object", m.role)
		}
		kind, _ := d.Get("type").AsString()
		text := d.Get(kind)
		switch {
		case kind != "text" && (kind != "refusal" || m.role != "assistant"):
			return remote("a part of type %q in a %s message", kind, m.role)
		case text.Kind() != jinja.KindString:
			return remote("a %s part without a text", kind)
		case !absent(d.Get("uuid")):
			return remote("a %s part with a uuid", kind)
		}
	}
	return nil
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
				return errCustomCall
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

// errCustomCall is what parse_chat_messages says (vLLM 0.32, chat_utils.py). gpt-oss doesn't come there.
var errCustomCall = refuse("parse", "chat completions only support assistant tool_calls of type 'function'.")

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

// text joins the parts of a content with newlines, as vLLM's string format does. Parts without text
// are dropped there, but not where it joins the parts of a tool message for templates that take parts.
func (m *message) text(keepEmpty bool) string {
	if s, ok := m.content.AsString(); ok {
		return s
	}
	var b strings.Builder
	first := true
	for _, p := range m.parts {
		s := partText(p)
		if s == "" && !keepEmpty {
			continue
		}
		if !first {
			b.WriteByte('\n')
		}
		first = false
		b.WriteString(s)
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
