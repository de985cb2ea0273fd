package chat

import (
	"errors"
	"strings"
	"unsafe"

	"kvasir/token/jinja"
)

// marker is what transformers appends to the final message that is to be continued, to find its end
// in the rendered text.
const marker = "CONTINUE_FINAL_MESSAGE_TAG "

// applyTemplate is vLLM's HfRenderer followed by transformers' apply_chat_template.
func (r *Renderer) applyTemplate(req *request, p *Prompt, buf *Buffer) error {
	if err := r.requestTemplate(req); err != nil {
		return err
	}
	kwargs := r.mergeKwargs(req)
	tools := jinja.None
	if list := r.toolList(req); list != nil {
		tools = jinja.ListOf(list)
	}
	if v := kwargs.Get("tools"); !v.IsMissing() { // the client's own, as they are
		tools = v
	}
	t := r.cfg.Template
	if !tools.IsNone() && r.cfg.ToolTemplate != nil {
		t = r.cfg.ToolTemplate
	}
	choice := r.format[t]
	if req.template != "" {
		var err error
		if t, err = jinja.Compile(req.template); err != nil {
			return templateError(err)
		}
		choice = r.detect(t)
	}
	if choice.err != nil {
		return choice.err
	}
	conv, err := req.conversation(choice.format)
	if err != nil {
		return err
	}
	src := t.Source()
	for i := range req.messages {
		if req.messages[i].role == "developer" {
			if !strings.Contains(src, `"developer"`) && !strings.Contains(src, `'developer'`) {
				conv = foldDevelopers(conv)
			}
			break
		}
	}
	if len(conv) == 0 {
		return refuse("render", "Cannot apply chat template to an empty conversation. Provide at least one message.")
	}
	if req.cont && req.addGen {
		return refuse("render", "continue_final_message and add_generation_prompt are not compatible.")
	}
	vars, err := r.variables(kwargs, t)
	if err != nil {
		return err
	}
	final := ""
	if req.cont {
		if final, err = markFinal(conv, src); err != nil {
			return err
		}
	}
	vars.Set("messages", jinja.ListOf(conv))
	vars.Set("tools", tools)
	vars.Set("documents", orNone(kwargs.Get("documents")))
	vars.Set("add_generation_prompt", jinja.Bool(req.addGen))
	if buf.text == nil { // about as long as the body, mostly
		buf.text = make([]byte, 0, len(src)+req.size+req.size/8)
	}
	out, err := t.AppendRender(buf.text[:0], vars, jinja.Env{Now: r.cfg.Now(), Limits: r.cfg.Limits})
	if err != nil {
		return templateError(err)
	}
	buf.text = out
	text := unsafe.String(unsafe.SliceData(out), len(out))
	if req.cont {
		if text, err = cutAtMarker(text, final); err != nil {
			return err
		}
	}
	p.Text = text
	return nil
}

// mergeKwargs lays the request's template arguments over the server's. Values null and "auto" are
// dropped on the way, and fields of the request win over chat_template_kwargs (merge_kwargs and
// build_chat_params of vLLM).
func (r *Renderer) mergeKwargs(req *request) *jinja.Dict {
	// The request's own: chat_template_kwargs as they are, then the fields. What is null or "auto" is
	// dropped when these are laid over the defaults.
	own := jinja.NewDict(8)
	if req.kwargs != nil {
		own = req.kwargs.Clone()
	}
	own.Set("add_generation_prompt", jinja.Bool(req.addGen))
	own.Set("continue_final_message", jinja.Bool(req.cont))
	if !req.documents.IsNone() {
		own.Set("documents", req.documents)
	}
	if req.effort != "" {
		own.Set("reasoning_effort", jinja.Str(req.effort))
		if req.kwargs == nil || req.kwargs.Get("enable_thinking").IsMissing() {
			own.Set("enable_thinking", jinja.Bool(req.effort != "none"))
		}
	}
	out := jinja.NewDict(own.Len() + 4)
	if r.cfg.DefaultKwargs != nil {
		out = r.cfg.DefaultKwargs.Clone()
	}
	for i := range own.Len() {
		k, v := own.At(i)
		if s, _ := v.AsString(); v.IsNone() || s == "auto" {
			continue
		}
		out.Set(k, v)
	}
	return out
}

// applyParams are the parameters of apply_chat_template itself: they do not reach the template.
var applyParams = map[string]bool{
	"tools": true, "documents": true, "add_generation_prompt": true, "continue_final_message": true, "tokenize": true,
	"chat_template": true,
}

// oddParams are those that change what is encoded, or clash with vLLM's own arguments.
var oddParams = map[string]bool{
	"conversation": true, "padding": true, "truncation": true, "max_length": true, "return_tensors": true,
	"return_dict": true, "return_assistant_tokens_mask": true, "tokenizer_kwargs": true, "messages": true,
	"model_config": true, "tokenizer": true, "conversations": true,
}

// variables gives the special tokens and the template arguments.
func (r *Renderer) variables(kwargs *jinja.Dict, t *jinja.Template) (*jinja.Dict, error) {
	n := kwargs.Len() + 8
	vars := jinja.NewDict(n)
	if r.cfg.SpecialTokens != nil {
		vars = r.cfg.SpecialTokens.Clone()
	}
	for i := range kwargs.Len() {
		k, v := kwargs.At(i)
		if oddParams[k] {
			return nil, remote("chat_template_kwargs has %s", k)
		}
		if !applyParams[k] {
			vars.Set(k, v)
		}
	}
	return vars, nil
}

// markFinal appends the marker to the last text of the last message and gives that text.
func markFinal(conv []jinja.Value, src string) (string, error) {
	last := conv[len(conv)-1]
	d, _ := last.AsDict()
	d = d.Clone()
	c := d.Get("content")
	if !strings.Contains(src, "content") {
		return "", refuse("render", "continue_final_message is set but \"content\" is not an accepted field in the chat_template")
	}
	if s, ok := c.AsString(); ok {
		d.Set("content", jinja.Str(s+marker))
		conv[len(conv)-1] = jinja.DictOf(d)
		return s, nil
	}
	list, _ := c.AsList()
	parts := append([]jinja.Value(nil), list...)
	for i := len(parts) - 1; i >= 0; i-- {
		pd, _ := parts[i].AsDict()
		if s, ok := pd.Get("text").AsString(); ok {
			pd = pd.Clone()
			pd.Set("text", jinja.Str(s+marker))
			parts[i] = jinja.DictOf(pd)
			d.Set("content", jinja.ListOf(parts))
			conv[len(conv)-1] = jinja.DictOf(d)
			return s, nil
		}
	}
	return "", refuse("render", "continue_final_message is set but we could not find any text to continue in the final message!")
}

// cutAtMarker ends the text where the final message ends.
func cutAtMarker(text, final string) (string, error) {
	tag := strings.TrimSuffix(marker, " ")
	at := strings.LastIndex(text, tag)
	if at < 0 || !strings.Contains(text, pyStrip(final)) {
		return "", refuse("render", "continue_final_message is set but the final message does not appear in the chat after applying the chat template!")
	}
	if strings.HasPrefix(text[at:], marker) {
		return text[:at], nil
	}
	// the template trimmed the message, and so the marker's blank
	return strings.TrimRightFunc(text[:at], jinja.IsSpace), nil
}

func pyStrip(s string) string { return strings.TrimFunc(s, jinja.IsSpace) }

// templateError sorts the errors of a template: a refusal of its own, or of Python's, is the engine's
// answer too; a limit of ours or a gap in our engine is not.
func templateError(err error) error {
	var e *jinja.Error
	if !errors.As(err, &e) || e.Limit || e.Unsupported {
		return remote("%v", err)
	}
	return refuse("render", "%s", e.Message)
}
