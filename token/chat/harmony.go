package chat

import (
	"unsafe"

	"kvasir/token/jinja"
)

// harmonyMessage is one message in the format that gpt-oss was trained on
// (https://cookbook.openai.com/articles/openai-harmony).
type harmonyMessage struct {
	author    string // a role, or the name of a tool
	recipient string
	channel   string
	json      bool // the content type of a tool call
	contents  []string
	assistant bool
}

// harmony renders a request as vLLM does for gpt-oss: whatever the repository's template says, in code
// (entrypoints/openai/parser/harmony_utils.py and the harmony library, see HarmonyLibrary).
func (r *Renderer) harmony(req *request, p *Prompt, buf *Buffer) error {
	p.AddSpecialTokens, p.Truncate = false, Truncation{} // the ids go to the engine as they are
	switch req.effort {
	case "", "low", "medium", "high":
	case "none":
		return refuse("render", "Harmony does not support reasoning_effort='none'")
	default:
		return refuse("render", "reasoning_effort='%s' is not supported by Harmony.", req.effort)
	}
	tools := r.toolList(req)
	msgs := req.messages
	instructions, hasInstructions := "", false
	if len(msgs) > 0 && (msgs[0].role == "system" || msgs[0].role == "developer") {
		instructions, hasInstructions = flatten(&msgs[0])
		msgs = msgs[1:]
	}
	list := []harmonyMessage{{author: "system", contents: []string{r.harmonySystem(req.effort, len(tools) > 0)}}}
	if instructions != "" || len(tools) > 0 {
		text := ""
		if hasInstructions {
			text = "# Instructions\n\n" + instructions
		}
		if len(tools) > 0 {
			if hasInstructions {
				text += "\n\n"
			}
			text += harmonyTools(tools, r.cfg.Harmony)
		}
		list = append(list, harmonyMessage{author: "developer", contents: []string{text}})
	}
	names := map[string]string{} // of the functions, by tool call id
	for i := range msgs {
		for _, c := range msgs[i].calls {
			id, name, _ := callFields(c)
			names[id] = name
		}
	}
	for i := range msgs {
		var err error
		if list, err = appendHarmony(list, &msgs[i], names); err != nil {
			return err
		}
	}
	r.writeHarmony(p, buf, dropAnalysis(list))
	return nil
}

// callFields reads a tool call.
func callFields(v jinja.Value) (id, name, arguments string) {
	c, _ := v.AsDict()
	f, _ := c.Get("function").AsDict()
	id, _ = c.Get("id").AsString()
	name, _ = f.Get("name").AsString()
	arguments, _ = f.Get("arguments").AsString()
	return id, name, arguments
}

// harmonySystem is the text of the system message, the date in it.
func (r *Renderer) harmonySystem(effort string, tools bool) string {
	if effort == "" {
		effort = "medium"
	}
	date := r.cfg.HarmonyDate
	if date == "" {
		date = r.cfg.Now().Format("2006-01-02")
	}
	text := "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: " + date +
		"\n\nReasoning: " + effort +
		"\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message."
	if tools {
		text += "\nCalls to these tools must go to the commentary channel: 'functions'."
	}
	return text
}

// flatten joins the texts of a content; ok is false when there is none at all.
func flatten(m *message) (text string, ok bool) {
	if s, ok := m.content.AsString(); ok {
		return s, true
	}
	for _, p := range m.parts {
		d, _ := p.AsDict()
		if s, is := d.Get("text").AsString(); is {
			text += s
			ok = true
		}
	}
	return text, ok
}

// appendHarmony adds what a message of the request becomes.
func appendHarmony(list []harmonyMessage, m *message, names map[string]string) ([]harmonyMessage, error) {
	reasoning, _ := m.reasoning.AsString()
	switch m.role {
	case "assistant":
	case "user", "system", "developer", "tool":
	default:
		return nil, refuse("render", "role %q is not one of user, assistant, system, developer, tool", m.role)
	}
	switch {
	case m.role == "assistant" && len(m.calls) > 0:
		if text, _ := flatten(m); text != "" {
			list = append(list, harmonyMessage{author: "assistant", assistant: true, channel: "commentary", contents: []string{text}})
		}
		if reasoning != "" {
			list = append(list, harmonyMessage{author: "assistant", assistant: true, channel: "analysis", contents: []string{reasoning}})
		}
		for _, c := range m.calls {
			_, name, arguments := callFields(c)
			list = append(list, harmonyMessage{author: "assistant", assistant: true, recipient: "functions." + name,
				channel: "commentary", json: true, contents: []string{arguments}})
		}
	case m.role == "tool":
		id, _ := m.dict.Get("tool_call_id").AsString()
		text, _ := flatten(m)
		list = append(list, harmonyMessage{author: "functions." + names[id], recipient: "assistant",
			channel: "commentary", contents: []string{text}})
	case m.role == "assistant":
		if reasoning != "" {
			list = append(list, harmonyMessage{author: "assistant", assistant: true, channel: "analysis", contents: []string{reasoning}})
		}
		if texts := harmonyTexts(m); len(texts) > 0 && texts[0] != "" {
			list = append(list, harmonyMessage{author: "assistant", assistant: true, channel: "final", contents: texts})
		}
	case m.role == "user":
		list = append(list, harmonyMessage{author: "user", contents: harmonyTexts(m)})
	default:
		if text, ok := flatten(m); ok {
			list = append(list, harmonyMessage{author: "developer", contents: []string{"# Instructions\n\n" + text}})
		}
	}
	return list, nil
}

// harmonyTexts lists the texts of a content; each is encoded on its own.
func harmonyTexts(m *message) []string {
	if m.parts == nil {
		s, _ := m.content.AsString()
		return []string{s}
	}
	texts := make([]string, len(m.parts))
	for i, p := range m.parts {
		d, _ := p.AsDict()
		texts[i], _ = d.Get("text").AsString()
	}
	if len(texts) == 0 { // "content or ''": an empty list is no content
		return []string{""}
	}
	return texts
}

// dropAnalysis removes the thoughts that led to an earlier final answer.
func dropAnalysis(list []harmonyMessage) []harmonyMessage {
	last := -1
	for i := range list {
		if list[i].assistant && list[i].channel == "final" {
			last = i
		}
	}
	out := list[:0]
	for i := range list {
		if i >= last || list[i].channel != "analysis" {
			out = append(out, list[i])
		}
	}
	return out
}

// writeHarmony writes the messages and the start of the answer.
func (r *Renderer) writeHarmony(p *Prompt, buf *Buffer, list []harmonyMessage) {
	w := newPartWriter(buf)
	for i := range list {
		m := &list[i]
		w.control("<|start|>")
		switch {
		case m.recipient == "":
			w.plain(m.author)
		case m.assistant: // vLLM writes the header of a tool call anew, as one text
			w.plain(m.author + " to=" + m.recipient)
		case r.cfg.Harmony == OSSHarmony:
			w.plain(m.author)
		default:
			w.plain(m.author)
			w.plain(" to=" + m.recipient)
		}
		if m.channel != "" {
			w.control("<|channel|>")
			switch {
			case m.json && m.assistant:
				w.plain(m.channel + " json")
			case m.recipient != "" && !m.assistant && r.cfg.Harmony == OSSHarmony:
				w.plain(m.channel)
				w.plain(" to=" + m.recipient)
			default:
				w.plain(m.channel)
			}
		}
		w.control("<|message|>")
		for _, c := range m.contents {
			w.plain(c)
		}
		if m.assistant && m.recipient != "" {
			w.control("<|call|>")
		} else {
			w.control("<|end|>")
		}
	}
	w.control("<|start|>")
	w.plain("assistant")
	w.finish(p)
}

// partWriter collects the parts of a prompt, all in the memory of a Buffer. The parts get their texts at
// the end, when that doesn't move any more.
type partWriter struct {
	buf *Buffer
	all []byte
}

func newPartWriter(buf *Buffer) partWriter {
	buf.parts, buf.ends = buf.parts[:0], buf.ends[:0]
	return partWriter{buf: buf, all: buf.text[:0]}
}

func (w *partWriter) add(s string, control bool) {
	w.all = append(w.all, s...)
	w.buf.parts = append(w.buf.parts, Part{Control: control})
	w.buf.ends = append(w.buf.ends, len(w.all))
}

func (w *partWriter) finish(p *Prompt) {
	b := w.buf
	b.text = w.all
	p.Text = unsafe.String(unsafe.SliceData(b.text), len(b.text))
	from := 0
	for i, end := range b.ends {
		b.parts[i].Text, from = p.Text[from:end], end
	}
	p.Parts = b.parts
}

func (w *partWriter) text(s string) {
	if s != "" {
		w.add(s, false)
	}
}

// plain is text in which the names of harmony's control tokens stay text. All of them begin with "<|"
// and a letter, where o200k's pattern always ends a word (a run of punctuation takes both characters),
// so that cutting there changes no id and leaves nothing to recognise.
func (w *partWriter) plain(s string) {
	from := 0
	for i := 0; i+2 < len(s); i++ {
		if s[i] == '<' && s[i+1] == '|' && (s[i+2]|0x20) >= 'a' && (s[i+2]|0x20) <= 'z' {
			w.text(s[from : i+2])
			from = i + 2
		}
	}
	w.text(s[from:])
}

func (w *partWriter) control(s string) {
	w.add(s, true)
}
