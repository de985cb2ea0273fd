package chat

// Encoder is what Prompt needs of a tokenizer; *bpe.Tokenizer is one.
type Encoder interface {
	// EncodeString appends the ids of text, control tokens recognised where the tokenizer does so.
	EncodeString(dst []uint32, text string, addSpecial bool) []uint32
	// AddedID gives the id of a control token.
	AddedID(content string) (id uint32, ok bool)
}

// Encode appends the prompt's ids. Truncation is left to the caller, who knows the context length.
func (p *Prompt) Encode(dst []uint32, enc Encoder) ([]uint32, error) {
	if p.Parts == nil {
		return enc.EncodeString(dst, p.Text, p.AddSpecialTokens), nil
	}
	for _, part := range p.Parts {
		if !part.Control {
			dst = enc.EncodeString(dst, part.Text, false)
			continue
		}
		id, ok := enc.AddedID(part.Text)
		if !ok {
			return nil, remote("the tokenizer has no token %s", part.Text)
		}
		dst = append(dst, id)
	}
	return dst, nil
}
