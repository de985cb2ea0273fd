package chat

import (
	"errors"
	"strings"

	"kvasir/token/jinja"
)

// knownPartKeys are the fields of all part types together: vLLM passes the others on to templates
// that take parts (_collect_extra_fields).
var knownPartKeys = map[string]bool{
	"audio_embeds": true, "audio_url": true, "closed": true, "data": true, "file": true, "image_embeds": true,
	"image_pil": true, "image_url": true, "input_audio": true, "name": true, "prompt_cache_breakpoint": true,
	"refusal": true, "text": true, "thinking": true, "type": true, "uuid": true, "video_embeds": true, "video_url": true,
}

// billingHeader begins a line that Claude Code adds to the system prompt and that changes with every
// request; vLLM drops it.
const billingHeader = "x-anthropic-billing-header"

// conversation makes the messages that a template sees (parse_chat_messages of
// vllm/renderers/chat_utils.py).
func (r *request) conversation(format jinja.ContentFormat) ([]jinja.Value, error) {
	out, _ := r.json.List(len(r.messages))
	for i := range r.messages {
		d, err := r.converse(&r.messages[i], format)
		if err != nil {
			return nil, err
		}
		out[i] = jinja.DictOf(d)
	}
	return out, nil
}

func (r *request) converse(m *message, format jinja.ContentFormat) (*jinja.Dict, error) {
	d := r.json.Dict(5)
	d.Set("role", m.dict.Get("role"))
	d.Set("content", r.templateContent(m, format))
	switch m.role {
	case "assistant":
		if m.hasCalls && len(m.calls) > 0 {
			for _, c := range m.calls {
				if err := r.parseArguments(c); err != nil {
					return nil, err
				}
			}
			d.Set("tool_calls", jinja.ListOf(m.calls))
		}
		if !m.reasoning.IsMissing() {
			d.Set("reasoning", m.reasoning)
			d.Set("reasoning_content", m.reasoning)
		}
	case "tool":
		if id := m.dict.Get("tool_call_id"); !id.IsMissing() {
			d.Set("tool_call_id", id)
		}
	}
	if name := m.dict.Get("name"); name.Kind() == jinja.KindString {
		d.Set("name", name)
	}
	if m.role == "developer" {
		d.Set("tools", jinja.None)
	}
	return d, nil
}

// templateContent gives a content in the shape that the template expects.
func (r *request) templateContent(m *message, format jinja.ContentFormat) jinja.Value {
	s, single := m.content.AsString()
	if format == jinja.StringContent || m.role == "tool" {
		switch {
		case m.role == "system":
			return jinja.Str(strings.Join(m.systemTexts(), "\n"))
		case single:
			return m.content
		}
		return jinja.Str(m.text(format == jinja.PartsContent))
	}
	if single {
		if m.role == "system" {
			rest, keep := withoutHeader(s)
			if !keep {
				return jinja.ListOf(nil)
			}
			s = rest
		}
		items, list := r.json.List(1)
		items[0] = r.textPart(s, nil)
		return list
	}
	parts := make([]jinja.Value, 0, len(m.parts))
	for _, p := range m.parts {
		d, _ := p.AsDict()
		text := partText(p)
		if kind, _ := d.Get("type").AsString(); m.role == "system" && kind == "text" {
			rest, keep := withoutHeader(text)
			if !keep {
				continue
			}
			text = rest
		}
		parts = append(parts, r.textPart(text, d))
	}
	return jinja.ListOf(parts)
}

// textPart makes {"type": "text", "text": ...} with the unknown keys of the client's part.
func (r *request) textPart(text string, from *jinja.Dict) jinja.Value {
	d := r.json.Dict(2)
	d.Set("type", jinja.Str("text"))
	d.Set("text", jinja.Str(text))
	if from != nil {
		for i := range from.Len() {
			if k, v := from.At(i); !knownPartKeys[k] {
				d.Set(k, v)
			}
		}
	}
	return jinja.DictOf(d)
}

// systemTexts lists the texts of a system message without the billing header.
func (m *message) systemTexts() []string {
	var out []string
	add := func(s string) {
		if rest, keep := withoutHeader(s); keep && rest != "" {
			out = append(out, rest)
		}
	}
	if s, ok := m.content.AsString(); ok {
		add(s)
	}
	for _, p := range m.parts {
		add(partText(p))
	}
	return out
}

func withoutHeader(s string) (rest string, keep bool) {
	if !strings.HasPrefix(s, billingHeader) {
		return s, true
	}
	_, rest, _ = strings.Cut(s, "\n")
	return rest, rest != ""
}

// parseArguments puts the object that a tool call's arguments spell in their place; text that is no
// object becomes an empty one (_postprocess_messages).
func (r *request) parseArguments(call jinja.Value) error {
	c, _ := call.AsDict()
	f, _ := c.Get("function").AsDict()
	text, _ := f.Get("arguments").AsString()
	empty := jinja.DictOf(r.json.Dict(0))
	if text == "" {
		f.Set("arguments", empty)
		return nil
	}
	v, err := r.json.Parse(text)
	if err != nil {
		var je *jinja.JSONError
		if errors.As(err, &je) && je.Beyond {
			return remote("a tool call's arguments: %v", err)
		}
		v = empty
	}
	if v.Kind() != jinja.KindDict {
		v = empty
	}
	f.Set("arguments", v)
	return nil
}

// foldDevelopers turns developer messages into system ones, for templates that don't know them, and
// merges all system messages at the front.
func foldDevelopers(conv []jinja.Value) []jinja.Value {
	var texts []string
	var others []jinja.Value
	merge := false
	converted := make([]jinja.Value, len(conv))
	for i, m := range conv {
		d, _ := m.AsDict()
		role, _ := d.Get("role").AsString()
		if role == "developer" {
			d = d.Clone()
			d.Set("role", jinja.Str("system"))
			d.Delete("tools")
			m, role = jinja.DictOf(d), "system"
		}
		converted[i] = m
		if role != "system" {
			others = append(others, m)
			continue
		}
		merge = merge || i > 0 || len(texts) > 0
		text, ok := d.Get("content").AsString()
		if !ok {
			parts, _ := d.Get("content").AsList()
			all := make([]string, len(parts))
			for j, p := range parts {
				pd, _ := p.AsDict()
				all[j], _ = pd.Get("text").AsString()
			}
			text = strings.Join(all, "\n")
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	if !merge {
		return converted
	}
	system := jinja.NewDict(2)
	system.Set("role", jinja.Str("system"))
	system.Set("content", jinja.Str(strings.Join(texts, "\n\n")))
	return append([]jinja.Value{jinja.DictOf(system)}, others...)
}
