package chat

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"kvasir/token/jinja"
)

// Kind is how a model's prompts are made.
type Kind uint8

const (
	KindTemplate   Kind = iota // a chat template
	KindHarmony                // gpt-oss
	KindTekken                 // Mistral's own tokenizer files
	KindDeepSeekV4             // code in vLLM
	KindRemote                 // code in vLLM that we don't have
)

func (k Kind) String() string {
	if int(k) < 5 {
		return [...]string{"template", "harmony", "tekken", "deepseek_v4", "remote"}[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// architectures that vLLM renders in code (vllm/config/model.py).
var architectures = map[string]Kind{
	"MoonshotKimiaForCausalLM":           KindRemote,
	"KimiK3ForConditionalGeneration":     KindRemote,
	"DeepseekV32ForCausalLM":             KindRemote,
	"DeepseekV4ForCausalLM":              KindDeepSeekV4,
	"DeepseekV4ForConditionalGeneration": KindDeepSeekV4,
	"DeepseekV41ForCausalLM":             KindRemote,
	"InklingForCausalLM":                 KindRemote,
	"InklingForConditionalGeneration":    KindRemote,
}

// maxFile bounds the files that are read here; tokenizer_config.json of Gemma 3 has 1.2 MB.
const maxFile = 32 << 20

// Open reads a model's repository and says how its prompts are made: config.json, tokenizer_config.json,
// chat_template.jinja and its kin. mode is the engine's --tokenizer-mode, "" or "auto" when it was not
// given. files lists the repository's files; nil takes those in dir, which must then have the weights
// too, or at least their names, as Mistral's repositories are known by them.
//
// The error is *NeedsRemote, with the reason.
func Open(dir fs.FS, mode string, files []string) (Config, error) {
	var cfg Config
	if files == nil {
		entries, err := fs.ReadDir(dir, ".")
		if err != nil {
			return cfg, remote("%v", err)
		}
		for _, e := range entries {
			files = append(files, e.Name())
		}
	}
	config, err := readJSON(dir, "config.json")
	if err != nil {
		return cfg, err
	}
	if s, _ := config.Get("model_type").AsString(); s == "gpt_oss" {
		cfg.Kind = KindHarmony
		return cfg, nil
	}
	if cfg.Kind, err = kindOf(config, mode, files); err != nil {
		return cfg, err
	}
	switch cfg.Kind {
	case KindTekken:
		cfg.TekkenVersion, err = tekkenVersion(dir)
		return cfg, err
	case KindTemplate:
		return cfg, openTemplates(dir, &cfg)
	}
	return cfg, nil
}

// kindOf applies vLLM's rules for --tokenizer-mode.
func kindOf(config *jinja.Dict, mode string, files []string) (Kind, error) {
	switch mode {
	case "", "auto":
	case "hf":
		return KindTemplate, nil
	case "mistral":
		return KindTekken, nil
	case "deepseek_v4":
		return KindDeepSeekV4, nil
	default:
		return KindRemote, remote("tokenizer mode %s is rendered in the engine's code", mode)
	}
	archs, _ := config.Get("architectures").AsList()
	for _, a := range archs {
		name, _ := a.AsString()
		if kind, ok := architectures[name]; ok {
			if kind == KindRemote {
				return kind, remote("%s is rendered in the engine's code", name)
			}
			return kind, nil
		}
	}
	has := func(pattern string) bool {
		for _, f := range files {
			if ok, _ := path.Match(pattern, f); ok {
				return true
			}
		}
		return false
	}
	tekken, sentencepiece := has("tekken.json"), has("tokenizer.model.v*")
	if !tekken && !sentencepiece {
		return KindTemplate, nil
	}
	switch {
	case has("consolidated*.safetensors"):
		if !tekken {
			return KindRemote, remote("a Mistral repository with a SentencePiece tokenizer")
		}
		return KindTekken, nil
	case has("*.safetensors") || has("*.bin"):
		return KindTemplate, nil
	}
	return KindRemote, remote("a tekken.json and no weights beside it: whether the engine takes it depends on consolidated*.safetensors; set the tokenizer mode")
}

func tekkenVersion(dir fs.FS) (int, error) {
	d, err := readJSON(dir, "tekken.json")
	if err != nil {
		return 0, err
	}
	if d.Len() == 0 {
		return 0, remote("no tekken.json")
	}
	config, _ := d.Get("config").AsDict()
	if config == nil {
		return 0, remote("tekken.json has no config")
	}
	s, _ := config.Get("version").AsString()
	n, err := strconv.Atoi(strings.TrimPrefix(s, "v"))
	if err != nil {
		return 0, remote("tekken.json: config.version is %q; v3, v7, v11 and v13 are known", s)
	}
	return n, nil
}

// readJSON reads an object; a file that is not there is an empty one.
func readJSON(dir fs.FS, name string) (*jinja.Dict, error) {
	data, err := readFile(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return jinja.NewDict(0), nil
	}
	if err != nil {
		return nil, remote("%s: %v", name, err)
	}
	v, err := jinja.ParseJSON(data)
	if err != nil {
		return nil, remote("%s: %v", name, err)
	}
	d, ok := v.AsDict()
	if !ok {
		return nil, remote("%s is not a JSON object", name)
	}
	return d, nil
}

func readFile(dir fs.FS, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	return data, err
}

// openTemplates finds the templates as transformers does: chat_template.jinja before what
// tokenizer_config.json says, more of them by name; and the processor's, which vLLM asks first for
// requests without tools.
func openTemplates(dir fs.FS, cfg *Config) error {
	config, err := readJSON(dir, "tokenizer_config.json")
	if err != nil {
		return err
	}
	texts := map[string]string{}
	if v := config.Get("chat_template"); v.Kind() == jinja.KindString {
		texts["default"], _ = v.AsString()
	} else if list, ok := v.AsList(); ok {
		for _, x := range list {
			d, ok := x.AsDict()
			if !ok {
				return remote("tokenizer_config.json: chat_template has an entry that is not an object")
			}
			name, _ := d.Get("name").AsString()
			texts[name], _ = d.Get("template").AsString()
		}
	}
	own := map[string]string{}
	if data, err := readFile(dir, "chat_template.jinja"); err == nil {
		own["default"] = string(data)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return remote("chat_template.jinja: %v", err)
	}
	more, _ := fs.Glob(dir, "additional_chat_templates/*.jinja")
	for _, name := range more {
		data, err := readFile(dir, name)
		if err != nil {
			return remote("%s: %v", name, err)
		}
		own[strings.TrimSuffix(path.Base(name), ".jinja")] = string(data)
	}
	if len(own) > 0 {
		texts = own
	}
	if texts["default"] == "" {
		return remote("the model has no chat template")
	}
	if err := sameProcessor(dir, texts["default"], own["default"] != ""); err != nil {
		return err
	}
	if cfg.Template, err = jinja.Compile(texts["default"]); err != nil {
		return remote("the chat template: %v", err)
	}
	if text := texts["tool_use"]; text != "" {
		if cfg.ToolTemplate, err = jinja.Compile(text); err != nil {
			return remote("the chat template tool_use: %v", err)
		}
	}
	cfg.SpecialTokens = SpecialTokens(config)
	return nil
}

// sameProcessor checks that a multimodal model's processor has no other template than its tokenizer.
func sameProcessor(dir fs.FS, text string, jinjaFile bool) error {
	processor, err := readJSON(dir, "processor_config.json")
	if err != nil {
		return err
	}
	if s, ok := processor.Get("chat_template").AsString(); ok && s != text {
		return remote("processor_config.json has another chat template than the tokenizer")
	}
	if jinjaFile {
		return nil
	}
	legacy, err := readJSON(dir, "chat_template.json")
	if err != nil {
		return err
	}
	if s, ok := legacy.Get("chat_template").AsString(); ok && s != text {
		return remote("chat_template.json has another chat template than the tokenizer")
	}
	return nil
}

// SpecialTokens reads what a template sees as bos_token and so on out of tokenizer_config.json.
func SpecialTokens(config *jinja.Dict) *jinja.Dict {
	out := jinja.NewDict(8)
	add := func(key string) {
		v := config.Get(key)
		if d, ok := v.AsDict(); ok {
			v = d.Get("content")
		}
		if v.Kind() == jinja.KindString {
			out.Set(key, v)
		}
	}
	for _, key := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		add(key)
	}
	for i := range config.Len() {
		if key, _ := config.At(i); strings.HasSuffix(key, "_token") {
			add(key)
		}
	}
	return out
}
