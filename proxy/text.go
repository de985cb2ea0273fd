package proxy

import (
	"bytes"
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"kvasir/token"
)

// maxText bounds the text of a prompt that a policy gets, in bytes: about a million
// tokens. What is behind it can't be told apart by a text tree, nothing else.
const maxText = 4 << 20

// maxNest bounds how deep text is looked for: a list of messages, whose content is a
// list of parts, of which a tool's result may be a list of parts again.
const maxNest = 8

// promptFields are the fields of a body that have its prompt, in the order in which
// their text is taken.
func promptFields(kind token.Endpoint) []string {
	switch kind {
	case token.Chat:
		return []string{"messages"}
	case token.Messages:
		return []string{"system", "messages"}
	case token.Completions:
		return []string{"prompt"}
	case token.Embeddings:
		return []string{"messages", "input"}
	case token.Responses:
		return []string{"input"}
	}
	return nil
}

// promptText returns what a request's prompt says, nil if that is nothing: the
// texts of its messages, or its prompts, one behind the other with between in the
// gaps. So do routers with text trees see it:
//
//   - Ray Serve (prefix_aware_router.py, _normalize_prompt_to_string) joins with
//     nothing: strings as they are, of a list its elements, of an object its "text"
//     if that is a string, else its "content";
//   - SGLang's gateway, and smg (extract_text_for_routing of each protocol), join
//     with a space, leave out what is empty, and take "reasoning_content" behind the
//     content.
//
// Roles, names, tools, images and token ids are not in it.
func promptText(body []byte, kind token.Endpoint, between string) []byte {
	names := promptFields(kind)
	var values [2][]byte // by name; of a name that occurs twice, the last
	c := cursor{b: bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))}
	if len(names) == 0 || !c.open('{') {
		return nil
	}
	for n := 0; c.more('}', &n); {
		k := c.key()
		v := c.value()
		for i, name := range names {
			if string(k) == name {
				values[i] = v
			}
		}
	}
	if c.err != "" {
		return nil
	}
	t := textJoiner{between: between}
	for _, v := range values {
		t.value(v, 0)
	}
	return t.out
}

// value reads any value and returns it as it stands.
func (c *cursor) value() []byte {
	c.peek()
	start := c.i
	c.skip()
	if c.err != "" {
		return nil
	}
	return c.b[start:c.i]
}

// A textJoiner collects the texts of a prompt.
type textJoiner struct {
	between string
	out     []byte
}

func (t *textJoiner) full() bool { return len(t.out) >= maxText }

// value takes the text of one JSON value, which is known to be well formed.
func (t *textJoiner) value(v []byte, depth int) {
	if len(v) == 0 || depth > maxNest || t.full() {
		return
	}
	c := cursor{b: v}
	switch v[0] {
	case '"':
		t.add(v[1 : len(v)-1])
	case '[':
		c.open('[')
		for n := 0; c.more(']', &n) && !t.full(); {
			t.value(c.value(), depth+1)
		}
	case '{':
		t.object(&c, depth)
	}
}

// object takes the text of a message, or of a part of one.
func (t *textJoiner) object(c *cursor, depth int) {
	var text, content, reasoning []byte
	c.open('{')
	for n := 0; c.more('}', &n); {
		k := c.key()
		v := c.value()
		switch string(k) {
		case "text":
			text = v
		case "content":
			content = v
		case "reasoning_content":
			reasoning = v
		}
	}
	if len(text) > 0 && text[0] == '"' {
		content = text
	}
	t.value(content, depth+1)
	if t.between != "" && len(reasoning) > 0 && reasoning[0] == '"' {
		t.value(reasoning, depth+1)
	}
}

// add appends what is between the quotes of a JSON string, decoded.
func (t *textJoiner) add(raw []byte) {
	if len(raw) == 0 {
		return
	}
	if len(t.out) > 0 {
		t.out = append(t.out, t.between...)
	}
	t.out = slices.Grow(t.out, min(len(raw), max(maxText-len(t.out), 0)))
	for len(raw) > 0 && !t.full() {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			n = len(raw)
		}
		t.out = append(t.out, raw[:min(n, maxText-len(t.out))]...)
		if raw = raw[n:]; len(raw) > 0 {
			t.out, raw = appendEscape(t.out, raw)
		}
	}
	t.out = t.out[:min(len(t.out), maxText)]
}

// appendEscape decodes the escape at the beginning of raw, and returns what is
// behind it. What is no escape of JSON stays as it is.
func appendEscape(dst, raw []byte) (out, rest []byte) {
	if len(raw) < 2 {
		return append(dst, raw...), nil
	}
	switch raw[1] {
	case '"', '\\', '/':
		return append(dst, raw[1]), raw[2:]
	case 'b':
		return append(dst, '\b'), raw[2:]
	case 'f':
		return append(dst, '\f'), raw[2:]
	case 'n':
		return append(dst, '\n'), raw[2:]
	case 'r':
		return append(dst, '\r'), raw[2:]
	case 't':
		return append(dst, '\t'), raw[2:]
	}
	r, ok := unit(raw)
	if !ok {
		return append(dst, raw[0]), raw[1:]
	}
	raw = raw[6:]
	if utf16.IsSurrogate(r) {
		low, _ := unit(raw)
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			raw = raw[6:]
		}
	}
	return utf8.AppendRune(dst, r), raw
}

// unit reads \uXXXX at the beginning of raw.
func unit(raw []byte) (r rune, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	for _, x := range raw[2:6] {
		switch {
		case x >= '0' && x <= '9':
			x -= '0'
		case x >= 'a' && x <= 'f':
			x -= 'a' - 10
		case x >= 'A' && x <= 'F':
			x -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(x)
	}
	return r, true
}
