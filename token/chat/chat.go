// Package chat turns an OpenAI chat request into the prompt that vLLM makes of it: vLLM's own rules
// for messages, tools and template arguments, then the model's chat template (package jinja), or, for
// the models that have none, the renderer in code: gpt-oss (harmony), Mistral's Tekken repositories,
// DeepSeek-V4.
//
// The rules were read from vLLM 0.32 and transformers 5.19, and are tested against what vLLM 0.33 and
// transformers 5.20 made of 83 requests for each of 33 model families. Whatever can't be made exactly
// is an error that says so, *NeedsRemote; what the engine answers with 400 is *Refused.
package chat

import (
	"time"

	"kvasir/token/jinja"
)

// Config says how the engine was started, as far as prompts depend on it. The zero value of each field
// is vLLM's default.
type Config struct {
	Kind Kind
	// Template is the model's chat template, ToolTemplate the one named tool_use, if there is one; it
	// is taken for requests with tools. Both only for KindTemplate.
	Template, ToolTemplate *jinja.Template
	// SpecialTokens is what templates see as bos_token, eos_token, ... (see SpecialTokens).
	SpecialTokens *jinja.Dict
	// Format is --chat-template-content-format: "", "auto", "string" or "openai".
	Format string
	// DefaultKwargs is --default-chat-template-kwargs.
	DefaultKwargs *jinja.Dict
	// TrustRequestTemplate is --trust-request-chat-template: a request may bring a template.
	TrustRequestTemplate bool
	// ExcludeToolsWhenNone is --exclude-tools-when-tool-choice-none.
	ExcludeToolsWhenNone bool
	// Now is the engine's clock in the engine's time zone: some prompts have the date in them.
	Now func() time.Time
	// HarmonyDate pins the date of gpt-oss prompts (VLLM_SYSTEM_START_DATE, 2006-01-02); "" is today.
	HarmonyDate string
	// Harmony is the library with which the engine renders gpt-oss.
	Harmony HarmonyLibrary
	// TekkenVersion is the version in tekken.json: 3, 7, 11 or 13. For KindTekken.
	TekkenVersion int
	// Limits bounds templates; the zero value is jinja.DefaultLimits.
	Limits jinja.Limits
}

// A HarmonyLibrary is what an engine renders gpt-oss with.
type HarmonyLibrary uint8

const (
	// OSSHarmony is oss-harmony, 0.0.11 looked at, which vLLM needs since 0.31.0: the recipient of a
	// tool's result stands behind the channel, and exponents have their sign (1e+16).
	OSSHarmony HarmonyLibrary = iota
	// OpenAIHarmony is openai-harmony, 0.0.8 looked at, of vLLM before 0.31: the recipient stands
	// before the channel, and only negative exponents have a sign (1e16).
	OpenAIHarmony
)

// Part is a stretch of a prompt that is encoded on its own.
type Part struct {
	Text string
	// Control says that Text is the name of one control token. Otherwise it is plain text in which
	// no control token is recognised.
	Control bool
}

// Prompt is a rendered request. Text and Parts lie in the Buffer, where one was given: they hold until its
// next use.
type Prompt struct {
	// Text is the whole prompt. For models with a template it is to be encoded as the tokenizer
	// does, control tokens recognised anywhere.
	Text string
	// Parts is how the code renderers write: to be encoded one by one, when not nil.
	Parts []Part
	// AddSpecialTokens asks the tokenizer for BOS and the like, on top of the template's.
	AddSpecialTokens bool
	Truncate         Truncation
	Salt             string // cache_salt
}

// Renderer renders the requests of one model; it is safe for concurrent use.
type Renderer struct {
	cfg    Config
	format map[*jinja.Template]formatChoice
}

type formatChoice struct {
	format jinja.ContentFormat
	err    error
}

// New makes a renderer. It fails when the configuration can't be rendered here: *NeedsRemote.
func New(cfg Config) (*Renderer, error) {
	r := &Renderer{cfg: cfg, format: map[*jinja.Template]formatChoice{}}
	if r.cfg.Now == nil {
		return nil, remote("no clock: Config.Now is not set")
	}
	switch cfg.Kind {
	case KindTemplate:
		if cfg.Template == nil {
			return nil, remote("the model has no chat template")
		}
		for _, t := range []*jinja.Template{cfg.Template, cfg.ToolTemplate} {
			if t != nil {
				r.format[t] = r.detect(t)
			}
		}
		if c := r.format[cfg.Template]; c.err != nil {
			return nil, c.err
		}
	case KindHarmony, KindDeepSeekV4:
	case KindTekken:
		switch cfg.TekkenVersion {
		case 3, 7, 11, 13:
		default:
			return nil, remote("a Tekken tokenizer of version %d; 3, 7, 11 and 13 are known", cfg.TekkenVersion)
		}
	default:
		return nil, remote("no renderer of ours for %s", cfg.Kind)
	}
	return r, nil
}

func (r *Renderer) detect(t *jinja.Template) formatChoice {
	switch r.cfg.Format {
	case "string":
		return formatChoice{format: jinja.StringContent}
	case "openai":
		return formatChoice{format: jinja.PartsContent}
	case "", "auto":
		f, ok := t.ContentFormat()
		if !ok {
			return formatChoice{err: remote("the template keeps messages in a namespace: the content format depends on vLLM's version; set --chat-template-content-format")}
		}
		return formatChoice{format: f}
	}
	return formatChoice{err: remote("chat template content format %q; auto, string and openai are known", r.cfg.Format)}
}

// Buffer is memory for a prompt's text, to be used for one prompt after the other. The zero value is
// ready.
type Buffer struct {
	text  []byte
	parts []Part
	ends  []int // of each part, in text
}

// keepBuffer bounds what a Buffer keeps from one prompt to the next, in bytes.
const keepBuffer = 8 << 20

// Chat renders the body of a POST /v1/chat/completions. The error is *Refused or *NeedsRemote.
func (r *Renderer) Chat(body []byte) (Prompt, error) {
	return r.ChatIn(&Buffer{}, body)
}

// ChatIn is Chat with memory for the text.
func (r *Renderer) ChatIn(buf *Buffer, body []byte) (Prompt, error) {
	if cap(buf.text) > keepBuffer || cap(buf.parts) > keepBuffer/64 {
		*buf = Buffer{}
	}
	req := newRequest()
	defer req.release()
	req.json.ReuseTexts = true // the prompt is in buf
	err := req.parse(body)
	if err == errCustomCall && r.cfg.Kind == KindHarmony { // rendered, but not by the library alone
		return Prompt{}, remote("a tool call of type custom")
	}
	if err != nil {
		return Prompt{}, err
	}
	if req.echo {
		return Prompt{}, remote("echo")
	}
	p := Prompt{AddSpecialTokens: req.special, Truncate: req.truncate, Salt: req.salt}
	switch r.cfg.Kind {
	case KindTemplate:
		err = r.applyTemplate(req, &p, buf)
	case KindHarmony:
		err = r.harmony(req, &p, buf)
	case KindTekken:
		err = r.tekken(req, &p, buf)
	case KindDeepSeekV4:
		err = r.deepSeekV4(req, &p)
	}
	if err != nil {
		return Prompt{}, err
	}
	if p.AddSpecialTokens && p.Truncate.Set {
		return Prompt{}, remote("add_special_tokens together with truncate_prompt_tokens")
	}
	return p, nil
}

// requestTemplate checks a template that comes with the request.
func (r *Renderer) requestTemplate(req *request) error {
	inKwargs := false
	if req.kwargs != nil {
		inKwargs = !absent(req.kwargs.Get("chat_template"))
	}
	if (req.template != "" || inKwargs || !absent(req.fields.Get("chat_template"))) && !r.cfg.TrustRequestTemplate {
		return refuse("request", "Chat template is passed with request, but --trust-request-chat-template is not set.")
	}
	if inKwargs {
		return remote("a chat template in chat_template_kwargs")
	}
	return nil
}

// toolList gives the tools that the renderer shows.
func (r *Renderer) toolList(req *request) []jinja.Value {
	if req.toolsNone && r.cfg.ExcludeToolsWhenNone {
		return nil
	}
	return req.tools
}

// Messages is for POST /v1/messages, which vLLM converts to a chat request by rules that are not
// reproduced here: the engine renders it.
func (r *Renderer) Messages([]byte) (Prompt, error) {
	return Prompt{}, remote("/v1/messages is converted in the engine's code")
}

// Responses is for POST /v1/responses; it may refer to earlier responses that only the engine has.
func (r *Renderer) Responses([]byte) (Prompt, error) {
	return Prompt{}, remote("/v1/responses is converted in the engine's code")
}
