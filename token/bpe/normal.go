package bpe

import "fmt"

// A normalizer is a short list of steps.
type normalizer struct{ steps []step }

type step struct {
	nfc      bool
	old, new []byte // Replace; old is empty for Prepend
}

func newNormalizer(file string, c *component) (normalizer, error) {
	var n normalizer
	err := n.add(file, "normalizer", c)
	return n, err
}

func (n *normalizer) add(file, at string, c *component) error {
	if c == nil {
		return nil
	}
	switch c.Type {
	case "Sequence":
		for i := range c.Normalizers {
			if err := n.add(file, fmt.Sprintf("%s.normalizers[%d]", at, i), &c.Normalizers[i]); err != nil {
				return err
			}
		}
	case "NFC":
		n.steps = append(n.steps, step{nfc: true})
	case "Prepend":
		n.steps = append(n.steps, step{new: []byte(c.Prepend)})
	case "Replace":
		if c.Pattern == nil || c.Pattern.String == nil || *c.Pattern.String == "" {
			return &Unsupported{file, at + ".pattern", "anything but a string"}
		}
		n.steps = append(n.steps, step{old: []byte(*c.Pattern.String), new: []byte(c.Content)})
	default:
		return &Unsupported{file, at + ".type", fmt.Sprintf("%q", c.Type)}
	}
	return nil
}

// apply normalizes one segment. The result is b itself or lies in s.
func (n *normalizer) apply(b []byte, s *scratch) []byte {
	for i := range n.steps {
		p := &n.steps[i]
		out := s.text[:0]
		switch {
		case len(b) == 0:
			return b
		case p.nfc:
			if nfcChange(b) == len(b) {
				continue
			}
			out, s.runes = appendNFC(out, b, s.runes)
		case len(p.old) == 0:
			out = append(append(out, p.new...), b...)
		default:
			out = appendReplaced(out, b, p.old, p.new)
		}
		// the buffer that b may lie in is free now
		s.text, s.text2 = s.text2, out
		b = out
	}
	return b
}

// text gives the normalized form of a token's content.
func (n *normalizer) string(t string) string {
	return string(n.apply([]byte(t), &scratch{}))
}

// onlySpaces returns the character that replaces U+0020, if that is all that
// the normalizer does.
func (n *normalizer) onlySpaces() (rune, bool) {
	if len(n.steps) != 1 || string(n.steps[0].old) != " " {
		return 0, false
	}
	rs := []rune(string(n.steps[0].new))
	if len(rs) != 1 || rs[0] < 0x80 {
		return 0, false
	}
	return rs[0], true
}
