package kv

// A Model is a name that clients may use for a large language model or an adapter
// of one, as an engine tells it.
type Model struct {
	ID     string
	Root   string // path or repository of its files, "" if not told
	Parent string // the base model's name if this is a LoRA adapter, else ""
	MaxLen int    // longest prompt and output together, tokens; 0 if not told
}
