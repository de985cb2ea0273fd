package chat

import (
	"sort"
	"strings"

	"kvasir/token/jinja"
)

// The control tokens and fixed texts of DeepSeek-V4's prompts. The texts are part of the model's input
// format, as published with its encoding (MIT) and used by vLLM's tokenizers/deepseek_v4_encoding.py.
const (
	dsBOS       = "<｜begin▁of▁sentence｜>"
	dsEOS       = "<｜end▁of▁sentence｜>"
	dsUser      = "<｜User｜>"
	dsAssistant = "<｜Assistant｜>"
	dsReminder  = "<｜latest_reminder｜>"
	dsThink     = "<think>"
	dsThinkEnd  = "</think>"
	dsml        = "｜DSML｜"

	dsHigh = "Reasoning Effort: Absolute maximum with no shortcuts permitted.\nYou MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\nExplicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n"
	dsMax  = "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\nYou MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.\nDo not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.\n\n"

	dsToolsHead = "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by writing a \"<" + dsml + "tool_calls>\" block like the following:\n\n<" + dsml + "tool_calls>\n<" + dsml + "invoke name=\"$TOOL_NAME\">\n<" + dsml + "parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</" + dsml + "parameter>\n...\n</" + dsml + "invoke>\n<" + dsml + "invoke name=\"$TOOL_NAME2\">\n...\n</" + dsml + "invoke>\n</" + dsml + "tool_calls>\n\nString parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\nIf thinking_mode is enabled (triggered by " + dsThink + "), you MUST output your complete reasoning inside " + dsThink + "..." + dsThinkEnd + " BEFORE any tool calls or final response.\n\nOtherwise, output directly after " + dsThinkEnd + " with tool calls or final response.\n\n### Available Tool Schemas\n\n"
	dsToolsTail = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
)

// dsMessage is a message on its way into the prompt. Tool results are blocks of user messages.
type dsMessage struct {
	role      string
	content   string
	blocks    []dsBlock // of a user message
	reasoning string
	calls     []jinja.Value
	tools     []jinja.Value // of the system message
}

type dsBlock struct {
	text   string
	result bool
	id     string
}

// deepSeekV4 renders as vLLM's DeepSeek-V4 tokenizer does. The model thinks unless it is told not to.
func (r *Renderer) deepSeekV4(req *request, p *Prompt) error {
	if err := r.requestTemplate(req); err != nil {
		return err
	}
	kwargs := r.mergeKwargs(req)
	conv, err := req.conversation(jinja.PartsContent)
	if err != nil {
		return err
	}
	tools := r.toolList(req)
	if v := kwargs.Get("tools"); !v.IsMissing() {
		return remote("tools in chat_template_kwargs")
	}
	thinking := true
	if t, e := kwargs.Get("thinking"), kwargs.Get("enable_thinking"); !t.IsMissing() || !e.IsMissing() {
		thinking = t.Truth() || e.Truth()
	}
	effort, given := kwargs.Get("reasoning_effort").AsString()
	switch {
	case !given && thinking:
		effort = "high"
	case effort == "none":
		thinking, effort = false, ""
	case effort == "low", effort == "minimal", effort == "medium", !given:
		effort = ""
	case effort != "max":
		effort = "high"
	}
	drop := true
	if d := kwargs.Get("drop_thinking"); !d.IsMissing() {
		drop = d.Truth()
	}
	msgs := dsMerge(conv)
	if len(tools) > 0 {
		msgs = dsAttachTools(msgs, tools)
		drop = false
	}
	dsSortResults(msgs)
	if thinking && drop {
		msgs = dsDropThoughts(msgs)
	}
	w := dsWriter{msgs: msgs, thinking: thinking, drop: drop, lastUser: dsLastUser(msgs)}
	w.b.WriteString(dsBOS)
	if thinking && len(msgs) > 0 {
		w.b.WriteString(map[string]string{"high": dsHigh, "max": dsMax}[effort])
	}
	for i := range msgs {
		if err := w.message(i); err != nil {
			return err
		}
	}
	p.Text = w.b.String()
	return nil
}

// dsText joins the text parts of a content.
func dsText(v jinja.Value) string {
	if s, ok := v.AsString(); ok {
		return s
	}
	parts, _ := v.AsList()
	texts := make([]string, len(parts))
	for i, p := range parts {
		d, _ := p.AsDict()
		texts[i], _ = d.Get("text").AsString()
	}
	return strings.Join(texts, "\n\n")
}

// dsMerge makes tool results blocks of user messages, and user messages that follow each other one.
func dsMerge(conv []jinja.Value) []*dsMessage {
	var out []*dsMessage
	for _, v := range conv {
		d, _ := v.AsDict()
		m := &dsMessage{content: dsText(d.Get("content"))}
		m.role, _ = d.Get("role").AsString()
		block := dsBlock{text: m.content}
		switch m.role {
		case "tool":
			block.result = true
			block.id, _ = d.Get("tool_call_id").AsString()
			m.role, m.content = "user", ""
		case "user":
		default:
			m.reasoning, _ = d.Get("reasoning").AsString()
			m.calls, _ = d.Get("tool_calls").AsList()
			out = append(out, m)
			continue
		}
		if n := len(out); n > 0 && out[n-1].role == "user" {
			out[n-1].blocks = append(out[n-1].blocks, block)
			continue
		}
		m.blocks = []dsBlock{block}
		out = append(out, m)
	}
	return out
}

// dsAttachTools hands the tools to the first system message, or to a new one at the front.
func dsAttachTools(msgs []*dsMessage, tools []jinja.Value) []*dsMessage {
	for _, m := range msgs {
		if m.role == "system" {
			m.tools = tools
			return msgs
		}
	}
	return append([]*dsMessage{{role: "system", tools: tools}}, msgs...)
}

// dsSortResults puts the tool results of a message in the order of the calls.
func dsSortResults(msgs []*dsMessage) {
	order := map[string]int{}
	for _, m := range msgs {
		if m.role == "assistant" && len(m.calls) > 0 {
			order = map[string]int{}
			for i, c := range m.calls {
				if id, _, _ := callFields(c); id != "" {
					order[id] = i
				}
			}
			continue
		}
		var results []dsBlock
		for _, b := range m.blocks {
			if b.result {
				results = append(results, b)
			}
		}
		if len(results) < 2 || len(order) == 0 {
			continue
		}
		sort.SliceStable(results, func(i, j int) bool { return order[results[i].id] < order[results[j].id] })
		next := 0
		for i := range m.blocks {
			if m.blocks[i].result {
				m.blocks[i] = results[next]
				next++
			}
		}
	}
}

func dsLastUser(msgs []*dsMessage) int {
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].role == "user" || msgs[i].role == "developer" {
			return i
		}
	}
	return -1
}

// dsDropThoughts removes the reasoning before the last user message, and with it messages of roles
// that have no place there.
func dsDropThoughts(msgs []*dsMessage) []*dsMessage {
	last := dsLastUser(msgs)
	var out []*dsMessage
	for i, m := range msgs {
		switch {
		case i >= last || m.role == "user" || m.role == "system" || m.role == "tool" ||
			m.role == "latest_reminder" || m.role == "direct_search_results":
			out = append(out, m)
		case m.role == "assistant":
			c := *m
			c.reasoning = ""
			out = append(out, &c)
		}
	}
	return out
}

type dsWriter struct {
	b              strings.Builder
	msgs           []*dsMessage
	thinking, drop bool
	lastUser       int
}

func (w *dsWriter) message(i int) error {
	m := w.msgs[i]
	switch m.role {
	case "system":
		w.b.WriteString(m.content)
		w.tools(m)
	case "developer":
		if m.content == "" {
			return refuse("render", "Invalid message for role `developer`")
		}
		w.b.WriteString(dsUser + m.content)
	case "user":
		w.b.WriteString(dsUser)
		for j, b := range m.blocks {
			if j > 0 {
				w.b.WriteString("\n\n")
			}
			if b.result {
				w.b.WriteString("<tool_result>" + b.text + "</tool_result>")
			} else {
				w.b.WriteString(b.text)
			}
		}
	case "latest_reminder":
		w.b.WriteString(dsReminder + m.content)
	case "assistant":
		if w.thinking && (!w.drop || i > w.lastUser) {
			w.b.WriteString(m.reasoning + dsThinkEnd)
		}
		w.b.WriteString(m.content)
		w.calls(m.calls)
		w.b.WriteString(dsEOS)
	default:
		return refuse("render", "Invalid role: %s", m.role)
	}
	next := ""
	if i+1 < len(w.msgs) {
		if next = w.msgs[i+1].role; next != "assistant" && next != "latest_reminder" {
			return nil
		}
	}
	if m.role == "user" || m.role == "developer" || m.role == "system" && (next == "" || next == "assistant") {
		w.b.WriteString(dsAssistant)
		if w.thinking && (!w.drop || i >= w.lastUser) {
			w.b.WriteString(dsThink)
		} else {
			w.b.WriteString(dsThinkEnd)
		}
	}
	return nil
}

func (w *dsWriter) tools(m *dsMessage) {
	if len(m.tools) == 0 {
		return
	}
	w.b.WriteString("\n\n" + dsToolsHead)
	for i, t := range m.tools {
		if i > 0 {
			w.b.WriteByte('\n')
		}
		d, _ := t.AsDict()
		w.b.WriteString(dumps(d.Get("function")))
	}
	w.b.WriteString(dsToolsTail)
}

func (w *dsWriter) calls(calls []jinja.Value) {
	if len(calls) == 0 {
		return
	}
	w.b.WriteString("\n\n<" + dsml + "tool_calls>")
	for _, c := range calls {
		d, _ := c.AsDict()
		f, _ := d.Get("function").AsDict()
		name, _ := f.Get("name").AsString()
		w.b.WriteString("\n<" + dsml + "invoke name=\"" + name + "\">\n")
		args, _ := f.Get("arguments").AsDict()
		for i := range args.Len() {
			if i > 0 {
				w.b.WriteByte('\n')
			}
			k, v := args.At(i)
			text, isText := v.AsString()
			flag := "true"
			if !isText {
				text, flag = dumps(v), "false"
			}
			w.b.WriteString("<" + dsml + "parameter name=\"" + k + "\" string=\"" + flag + "\">" + text + "</" + dsml + "parameter>")
		}
		w.b.WriteString("\n</" + dsml + "invoke>")
	}
	w.b.WriteString("\n</" + dsml + "tool_calls>")
}

// dumps is json.dumps(v, ensure_ascii=False) for values that came from JSON, which can't fail.
func dumps(v jinja.Value) string {
	b, err := jinja.AppendJSON(nil, v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
