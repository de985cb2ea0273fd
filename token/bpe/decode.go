package bpe

import "bytes"

// decoder says how the tokens of a vocabulary spell text.
type decoder struct {
	space    []byte // stands for a space, or nil
	fallback bool   // <0xNN> is a byte
	strip    bool   // one space at the start of the text is not part of it
	first    bool   // in the first token, what stands for a space stands for nothing
}

func newDecoder(s *spec) decoder {
	var d decoder
	if s.byteLevel {
		return d
	}
	var walk func(c *component)
	walk = func(c *component) {
		if c == nil {
			return
		}
		switch c.Type {
		case "Sequence":
			for i := range c.Decoders {
				walk(&c.Decoders[i])
			}
		case "Replace":
			if c.Pattern != nil && c.Pattern.String != nil && c.Content == " " {
				d.space = []byte(*c.Pattern.String)
			}
		case "ByteFallback":
			d.fallback = true
		case "Metaspace":
			d.space = []byte(c.Replacement)
			d.first = c.PrependScheme != "never"
		case "Strip":
			d.strip = c.Content == " " && c.Start > 0
		}
	}
	walk(s.decoder)
	return d
}

// Decode appends the text of ids to dst. Ids that are not tokens are left out,
// and so are special added tokens if skipSpecial is set. A cut through a
// character leaves a part of it: the result need not be UTF-8.
func (t *Tokenizer) Decode(dst []byte, ids []uint32, skipSpecial bool) []byte {
	d := &t.decoder
	start, first := len(dst), true
	for _, id := range ids {
		b := t.model.vocab.bytes(id)
		if i, ok := t.addedByID[id]; ok {
			a := &t.added[i]
			if skipSpecial && a.Special {
				continue
			}
			b = []byte(a.Content)
		}
		if d.fallback && len(b) == 6 && b[0] == '<' && b[1] == '0' {
			if c, ok := hexByte(b); ok {
				dst, first = append(dst, c), false
				continue
			}
		}
		switch {
		case d.space == nil:
			dst = append(dst, b...)
		case first && d.first:
			dst = appendReplaced(dst, b, d.space, nil)
		default:
			dst = appendReplaced(dst, b, d.space, []byte{' '})
		}
		first = false
	}
	if d.strip && bytes.HasPrefix(dst[start:], []byte{' '}) {
		dst = append(dst[:start], dst[start+1:]...)
	}
	return dst
}

// hexByte reads <0xNN>.
func hexByte(b []byte) (byte, bool) {
	var v byte
	for _, c := range b[3:5] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | c
	}
	return v, b[2] == 'x' && b[5] == '>'
}

// Token returns the bytes that a token stands for in the vocabulary, or the
// content of an added token; nil if there is no such id. The caller must not
// change them.
func (t *Tokenizer) Token(id uint32) []byte {
	if i, ok := t.addedByID[id]; ok {
		return []byte(t.added[i].Content)
	}
	return t.model.vocab.bytes(id)
}

// AddedID returns the id of the added token with this content.
func (t *Tokenizer) AddedID(content string) (id uint32, ok bool) {
	i, ok := t.addedByKey[content]
	if !ok {
		return 0, false
	}
	return t.added[i].ID, true
}

// Added returns all added tokens. The caller must not change them.
func (t *Tokenizer) Added() []AddedToken { return t.added }
