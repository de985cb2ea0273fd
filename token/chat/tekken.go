package chat

import (
	"errors"
	"math"
	"sort"
	"strings"

	"kvasir/token/jinja"
)

// tkMessage is a message of mistral-common.
type tkMessage struct {
	role   string
	text   string // the content, when it is text only
	think  string // reasoning before the text (from v13 on)
	hasThk bool
	filled bool // the content is not empty (a list of one empty text is not)
	calls  []tkCall
	id     string // tool_call_id
	prefix bool
}

type tkCall struct {
	id, name string
	args     jinja.Value
}

// maxCallID is what vLLM cuts the ids of tool calls to: the last nine characters.
const maxCallID = 9

// tekken renders as mistral-common does for repositories with a tekken.json, after vLLM's own checks
// (vllm/tokenizers/mistral.py; mistral-common 1.13: validator, normalizer, instruct tokenizer).
func (r *Renderer) tekken(req *request, p *Prompt, buf *Buffer) error {
	p.AddSpecialTokens = false
	if req.kwargs != nil || req.template != "" || !absent(req.fields.Get("chat_template")) {
		return refuse("parse", "chat_template is not supported for Mistral tokenizers.")
	}
	if err := tkLast(req); err != nil {
		return err
	}
	msgs, err := r.tkConvert(req)
	if err != nil {
		return err
	}
	v := r.cfg.TekkenVersion
	if err := tkValidate(msgs, v); err != nil {
		return err
	}
	tools, err := tkTools(r.toolList(req))
	if err != nil {
		return err
	}
	system := ""
	if v < 7 {
		system = tkSystem(msgs)
	}
	w := tkWriter{partWriter: newPartWriter(buf), version: v, tools: tools, system: system}
	w.msgs = tkMerge(msgs, v)
	w.first, w.last = -1, -1
	for i, m := range w.msgs {
		if m.role == "user" {
			if w.first < 0 {
				w.first = i
			}
			w.last = i
		}
	}
	w.control("<s>")
	for i := range w.msgs {
		if err := w.message(i); err != nil {
			return err
		}
	}
	w.finish(p)
	return nil
}

// tkLast is vLLM's check of the flags against the last message.
func tkLast(req *request) error {
	if req.addGen && req.cont {
		return refuse("render", "Cannot set both `add_generation_prompt` and `continue_final_message` to True.")
	}
	if len(req.messages) == 0 {
		return refuse("render", "list index out of range")
	}
	last := req.messages[len(req.messages)-1].role
	if req.addGen && last == "assistant" {
		return refuse("render", "Cannot set `add_generation_prompt` to True when the last message is from the assistant. Consider using `continue_final_message` instead.")
	}
	if req.cont && last != "assistant" {
		return refuse("render", "Cannot set `continue_final_message` to True when the last message is not from the assistant.")
	}
	return nil
}

// tkConvert makes mistral-common's messages.
func (r *Renderer) tkConvert(req *request) ([]*tkMessage, error) {
	out := make([]*tkMessage, len(req.messages))
	for i := range req.messages {
		m := &req.messages[i]
		t := &tkMessage{role: m.role}
		out[i] = t
		switch m.role {
		case "developer":
			t.role = "system"
		case "user", "system", "assistant", "tool":
		default:
			return nil, refuse("render", "Unknown message role: %s", m.role)
		}
		if m.role != "assistant" && m.content.IsMissing() {
			return nil, refuse("render", "'content'")
		}
		for _, p := range m.parts {
			d, _ := p.AsDict()
			if kind, _ := d.Get("type").AsString(); kind == "refusal" {
				return nil, refuse("render", "'refusal' is not a valid ChunkTypes")
			}
		}
		t.text = joinChunks(m)
		t.filled = t.text != "" || len(m.parts) > 0
		if m.role == "tool" {
			id, ok := m.dict.Get("tool_call_id").AsString()
			if !ok {
				return nil, refuse("render", "a tool message has no tool_call_id")
			}
			t.id = lastRunes(id, maxCallID)
		}
		if m.role != "assistant" {
			continue
		}
		if s, ok := m.reasoning.AsString(); ok {
			if r.cfg.TekkenVersion < 11 {
				return nil, refuse("render", "Unexpected content chunk types in assistant message: ['ThinkChunk']")
			}
			if r.cfg.TekkenVersion < 13 {
				return nil, refuse("render", "Think not implemented for tokenizer < V13.")
			}
			t.think, t.hasThk, t.filled = s, true, true
		}
		t.prefix = req.cont && i == len(req.messages)-1
		for _, c := range m.calls {
			if err := req.parseArguments(c); err != nil {
				return nil, err
			}
			id, name, _ := callFields(c)
			d, _ := c.AsDict()
			f, _ := d.Get("function").AsDict()
			t.calls = append(t.calls, tkCall{lastRunes(id, maxCallID), name, f.Get("arguments")})
		}
	}
	return out, nil
}

// joinChunks joins the texts of one message.
func joinChunks(m *message) string {
	if s, ok := m.content.AsString(); ok {
		return s
	}
	var texts []string
	for _, p := range m.parts {
		if s := partText(p); s != "" {
			texts = append(texts, s)
		}
	}
	return strings.Join(texts, "\n\n")
}

func lastRunes(s string, n int) string {
	r := []rune(s)
	return string(r[max(0, len(r)-n):])
}

// tkSystem joins the system messages, which versions before 7 put into the last user message.
func tkSystem(msgs []*tkMessage) string {
	var texts []string
	for _, m := range msgs {
		if m.role == "system" && m.filled {
			texts = append(texts, m.text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// tkTools gives the tools as they are shown.
func tkTools(list []jinja.Value) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	out := make([]jinja.Value, len(list))
	for i, v := range list {
		t, _ := v.AsDict()
		f, _ := t.Get("function").AsDict()
		name, _ := f.Get("name").AsString()
		if !tkName(name) {
			return "", refuse("render", "Function name was %s but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64.", name)
		}
		fn := jinja.NewDict(3)
		fn.Set("name", f.Get("name"))
		if d := f.Get("description"); d.IsNone() {
			fn.Set("description", jinja.Str(""))
		} else {
			fn.Set("description", d)
		}
		if p := f.Get("parameters"); p.IsNone() {
			fn.Set("parameters", jinja.DictOf(jinja.NewDict(0)))
		} else {
			fn.Set("parameters", p)
		}
		tool := jinja.NewDict(2)
		tool.Set("type", jinja.Str("function"))
		tool.Set("function", jinja.DictOf(fn))
		out[i] = jinja.DictOf(tool)
	}
	return dumps(jinja.ListOf(out)), nil
}

func tkName(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-') {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 64
}

func tkID(s string) bool { return len(s) == maxCallID && tkName(s) && !strings.ContainsAny(s, "_-") }

// tkValidate is mistral-common's request validator.
func tkValidate(msgs []*tkMessage, version int) error {
	if len(msgs) == 1 && msgs[0].role != "user" && msgs[0].role != "system" {
		return refuse("render", "Conversation must start with a user message or system message")
	}
	if last := msgs[len(msgs)-1]; len(msgs) > 1 && last.role == "assistant" && !last.prefix {
		return refuse("render", "Expected last role User or Tool (or Assistant with prefix) for serving but got assistant")
	}
	follows := map[string]string{"system": "user assistant system", "user": "assistant system user",
		"assistant": "assistant user tool", "tool": "assistant tool user"}
	for i := 1; i < len(msgs); i++ {
		if before := msgs[i-1].role; !strings.Contains(follows[before], msgs[i].role) {
			return refuse("render", "Unexpected role '%s' after role '%s'", msgs[i].role, before)
		}
	}
	if err := tkPairs(msgs, version); err != nil {
		return err
	}
	for _, m := range msgs {
		switch m.role {
		case "assistant":
			if version < 7 && m.filled == (len(m.calls) > 0) {
				return refuse("render", "Assistant message must have either content or tool_calls, but not both.")
			}
			for _, c := range m.calls {
				if err := tkCheckID(c.id, version); err != nil {
					return err
				}
				if !tkName(c.name) {
					return refuse("render", "Function name was %s but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64.", c.name)
				}
			}
		case "tool":
			if err := tkCheckID(m.id, version); err != nil {
				return err
			}
		}
	}
	return nil
}

func tkCheckID(id string, version int) error {
	if version >= 13 {
		if id == "" || id == "null" {
			return refuse("render", "a tool call id is empty")
		}
		return nil
	}
	if !tkID(id) {
		return refuse("render", "Tool call id was %s but must be a-z, A-Z, 0-9, with a length of 9.", id)
	}
	return nil
}

// tkPairs checks that calls are answered before the next assistant message. As in mistral-common, the
// first message is not looked at.
func tkPairs(msgs []*tkMessage, version int) error {
	open := 0
	want, got := map[string]bool{}, map[string]bool{}
	for _, m := range msgs[1:] {
		switch m.role {
		case "tool":
			open--
			if version < 11 {
				continue
			}
			if got[m.id] || !want[m.id] {
				return refuse("render", "Duplicate or unexpected tool call id %s in tool results", m.id)
			}
			got[m.id] = true
		case "assistant":
			if version < 11 && open != 0 || version >= 11 && len(want) != len(got) {
				return refuse("render", "Not the same number of function calls and responses")
			}
			clear(want)
			clear(got)
			for _, c := range m.calls {
				if version >= 11 && want[c.id] {
					return refuse("render", "Duplicate tool call id %s in assistant message", c.id)
				}
				want[c.id] = true
			}
			open = len(m.calls)
		}
	}
	return nil
}

// tkMerge joins messages of the same role that follow each other, and in versions before 7 drops the
// system messages and begins with the user.
func tkMerge(msgs []*tkMessage, version int) []*tkMessage {
	var out []*tkMessage
	var ids []string // of the calls since the last results
	for i := 0; i < len(msgs); {
		j := i
		for j < len(msgs) && msgs[j].role == msgs[i].role {
			j++
		}
		group := msgs[i:j]
		switch msgs[i].role {
		case "system":
			if version >= 7 {
				out = append(out, group...)
			}
		case "tool":
			if version >= 11 {
				group = tkSortResults(group, ids)
			}
			out = append(out, group...)
			ids = nil
		default:
			m := tkJoin(group)
			out = append(out, m)
			for _, c := range m.calls {
				ids = append(ids, c.id)
			}
		}
		i = j
	}
	if len(out) == 0 || version < 7 && out[0].role != "user" {
		out = append([]*tkMessage{{role: "user"}}, out...)
	}
	return out
}

// tkSortResults puts results in the order of their calls.
func tkSortResults(group []*tkMessage, ids []string) []*tkMessage {
	call, result := map[string]int{}, map[string]int{}
	for i, id := range ids {
		call[id] = i
	}
	for i, m := range group {
		result[m.id] = i
	}
	at := func(id string) int {
		if i, ok := call[id]; ok {
			return i
		}
		return math.MaxInt
	}
	out := append([]*tkMessage(nil), group...)
	sort.SliceStable(out, func(i, j int) bool {
		if a, b := at(out[i].id), at(out[j].id); a != b {
			return a < b
		}
		return result[out[i].id] < result[out[j].id]
	})
	return out
}

// tkJoin makes one message of a group of user or assistant messages.
func tkJoin(group []*tkMessage) *tkMessage {
	if len(group) == 1 {
		return group[0]
	}
	out := &tkMessage{role: group[0].role}
	var texts []string
	for _, m := range group {
		if m.text != "" {
			texts = append(texts, m.text)
		}
		out.calls = append(out.calls, m.calls...)
		out.prefix = out.prefix || m.prefix
		out.hasThk = out.hasThk || m.hasThk
	}
	out.text = strings.Join(texts, "\n\n")
	out.filled = out.text != "" || out.hasThk
	if out.hasThk {
		out.think = "\x00joined"
	}
	return out
}

type tkWriter struct {
	partWriter
	version     int
	msgs        []*tkMessage
	tools       string
	system      string
	first, last int // user messages
	json        jinja.Parser
}

func (w *tkWriter) message(i int) error {
	m := w.msgs[i]
	switch m.role {
	case "system":
		w.control("[SYSTEM_PROMPT]")
		w.text(m.text)
		w.control("[/SYSTEM_PROMPT]")
	case "user":
		at := w.last
		if w.version >= 13 {
			at = w.first
		}
		if i == at && w.tools != "" {
			w.control("[AVAILABLE_TOOLS]")
			w.text(w.tools)
			w.control("[/AVAILABLE_TOOLS]")
		}
		w.control("[INST]")
		if i == w.last && w.system != "" {
			w.text(w.system + "\n\n" + m.text)
		} else {
			w.text(m.text)
		}
		w.control("[/INST]")
	case "assistant":
		return w.assistant(m)
	case "tool":
		return w.result(m)
	}
	return nil
}

func (w *tkWriter) assistant(m *tkMessage) error {
	switch {
	case m.text == "" && !m.hasThk && len(m.calls) == 0:
		return refuse("render", "Invalid assistant message")
	case w.version < 7 && m.text != "" && len(m.calls) > 0:
		return refuse("render", "Cannot have tool calls and content defined in the same assistant message")
	case m.hasThk && strings.HasPrefix(m.think, "\x00"):
		return remote("reasoning in assistant messages that follow each other")
	case m.hasThk: // a list of chunks: the text keeps its blanks
		w.control("[THINK]")
		w.text(m.think)
		w.control("[/THINK]")
		w.text(m.text)
	default:
		w.text(strings.TrimRight(m.text, " "))
	}
	if w.version < 11 && len(m.calls) > 0 {
		list := make([]jinja.Value, len(m.calls))
		for i, c := range m.calls {
			d := jinja.NewDict(3)
			d.Set("name", jinja.Str(c.name))
			d.Set("arguments", c.args)
			d.Set("id", jinja.Str(c.id))
			list[i] = jinja.DictOf(d)
		}
		w.control("[TOOL_CALLS]")
		w.text(dumps(jinja.ListOf(list)))
	} else {
		for _, c := range m.calls {
			w.control("[TOOL_CALLS]")
			w.text(c.name)
			if w.version < 13 {
				w.control("[CALL_ID]")
				w.text(c.id)
			}
			w.control("[ARGS]")
			w.text(dumps(c.args))
		}
	}
	if !m.prefix {
		w.control("</s>")
	}
	return nil
}

// result writes a tool's answer: before version 7 as JSON, read and written again.
func (w *tkWriter) result(m *tkMessage) error {
	w.control("[TOOL_RESULTS]")
	switch {
	case w.version < 7:
		content := jinja.DictOf(jinja.NewDict(0))
		if m.text != "" {
			v, err := w.json.Parse(m.text)
			var je *jinja.JSONError
			switch {
			case err == nil:
				content = v
			case errors.As(err, &je) && je.Beyond:
				return remote("a tool's result: %v", err)
			default:
				content = jinja.Str(m.text)
			}
		}
		d := jinja.NewDict(2)
		d.Set("content", content)
		d.Set("call_id", jinja.Str(m.id))
		w.text(dumps(jinja.DictOf(d)))
	case w.version < 13:
		w.text(m.id)
		w.control("[TOOL_CONTENT]")
		w.text(m.text)
	default:
		w.text(m.text)
	}
	w.control("[/TOOL_RESULTS]")
	return nil
}
