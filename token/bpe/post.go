package bpe

import (
	"encoding/json"
	"fmt"
)

// post is what the post-processor adds around one text.
type post struct{ before, after []uint32 }

func newPost(file string, c *component) (post, error) {
	var p post
	return p, p.add(file, "post_processor", c)
}

func (p *post) add(file, at string, c *component) error {
	if c == nil {
		return nil
	}
	switch c.Type {
	case "Sequence":
		for i := range c.Processors {
			if err := p.add(file, fmt.Sprintf("%s.processors[%d]", at, i), &c.Processors[i]); err != nil {
				return err
			}
		}
	case "ByteLevel": // offsets only
	case "TemplateProcessing":
		var before, after []uint32
		seen := false
		for i, x := range c.Single {
			switch {
			case x.Sequence != nil && x.Sequence.ID == "A" && !seen:
				seen = true
			case x.SpecialToken != nil:
				t, ok := c.SpecialTokens[x.SpecialToken.ID]
				if !ok {
					return &BadFile{file, fmt.Sprintf("%s.single[%d]", at, i), fmt.Errorf("%q is not in special_tokens", x.SpecialToken.ID)}
				}
				for _, id := range t.IDs {
					if id > maxID {
						return &BadFile{file, at + ".special_tokens", fmt.Errorf("id %d is above %d", id, maxID)}
					}
				}
				if seen {
					after = append(after, t.IDs...)
				} else {
					before = append(before, t.IDs...)
				}
			default:
				return &Unsupported{file, fmt.Sprintf("%s.single[%d]", at, i), "a template that is not special tokens around one A"}
			}
		}
		if !seen {
			return &Unsupported{file, at + ".single", "a template without the sequence A"}
		}
		p.wrap(before, after)
	case "RobertaProcessing", "BertProcessing":
		cls, err := pairID(file, at+".cls", c.Cls)
		if err != nil {
			return err
		}
		sep, err := pairID(file, at+".sep", c.Sep)
		if err != nil {
			return err
		}
		p.wrap([]uint32{cls}, []uint32{sep})
	default:
		return &Unsupported{file, at + ".type", fmt.Sprintf("%q", c.Type)}
	}
	return nil
}

func (p *post) wrap(before, after []uint32) {
	p.before = append(before, p.before...)
	p.after = append(p.after, after...)
}

// pairID reads ["<s>", 0].
func pairID(file, at string, raw json.RawMessage) (uint32, error) {
	var parts []json.RawMessage
	var id uint32
	err := json.Unmarshal(raw, &parts)
	if err == nil && len(parts) != 2 {
		err = fmt.Errorf("want [token, id]")
	}
	if err == nil {
		err = json.Unmarshal(parts[1], &id)
	}
	if err == nil && id > maxID {
		err = fmt.Errorf("id %d is above %d", id, maxID)
	}
	if err != nil {
		return 0, &BadFile{file, at, err}
	}
	return id, nil
}
