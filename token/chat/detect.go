package chat

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
	return [...]string{"template", "harmony", "tekken", "deepseek_v4", "remote"}[k]
}
