package bpe

// cuts is what CutBefore knows of the tokenizer.
type cuts struct{}

func newCuts(*Tokenizer) cuts { return cuts{} }
