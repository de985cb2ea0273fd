package proxy

import (
	"bytes"
)

// A usage is what an engine reports of a request at its end.
type usage struct {
	prompt, cached, output int
	hasPrompt, hasCached   bool
	hasOutput              bool
}

// A meaning is what one event of a stream, or one whole answer, says. One reader
// serves all dialects, for their names don't clash:
//
//	OpenAI     choices[].delta.{content,reasoning,reasoning_content,tool_calls,…}, choices[].text, usage, error
//	Anthropic  type, message.usage, delta.{text,thinking,partial_json}, usage; whole: content[]
//	Responses  type, delta "…", response.{usage,error,status}; whole: output[], status
//	vLLM       choices[].token_ids (/inference/v1/generate)
//
// Recorded from vLLM 0.32; see testdata.
type meaning struct {
	content bool // has something that the model said
	tokens  int  // how many, if told
	aborted bool // a choice ended with finish_reason "abort"
	last    bool // is the event that ends a stream of Anthropic's or of Responses
	choices int  // that were in it

	failed    bool // is an error instead of an answer
	clientErr bool // and that is the client's own: code 4xx

	usage usage
}

// read adds what one JSON document says to m. A document that isn't JSON says nothing.
func (m *meaning) read(data []byte) {
	c := cursor{b: data}
	if !c.open('{') {
		return
	}
	was := *m
	var typ []byte
	for n := 0; c.more('}', &n); {
		switch string(c.key()) {
		case "choices":
			m.readChoices(&c)
		case "usage":
			m.usage.read(&c)
		case "error":
			m.readError(&c)
		case "type":
			typ = c.text()
		case "delta": // Responses: a string; Anthropic: an object
			if c.peek() == '"' {
				m.content = len(c.text()) > 0 || m.content
			} else {
				m.readDelta(&c)
			}
		case "message":
			m.readNested(&c)
		case "response":
			m.readNested(&c)
		case "content_block":
			m.readBlock(&c)
		case "content", "output": // whole answers of Anthropic and Responses
			m.content = nonEmpty(&c) || m.content
		case "text": // also the end of a Responses part, which repeats it
			m.content = nonEmpty(&c) || m.content
		default:
			c.skip()
		}
	}
	if c.err != "" {
		*m = was
		return
	}
	switch string(typ) {
	case "error", "response.failed":
		m.failed = true
	case "message_stop", "response.completed", "response.incomplete":
		m.last = true
	}
}

// readChoices reads the OpenAI list of choices.
func (m *meaning) readChoices(c *cursor) {
	if !c.open('[') {
		c.skip()
		return
	}
	for n := 0; c.more(']', &n); {
		if !c.open('{') {
			c.skip()
			continue
		}
		m.choices++
		for k := 0; c.more('}', &k); {
			switch string(c.key()) {
			case "delta", "message":
				m.readDelta(c)
			case "text":
				m.content = len(c.text()) > 0 || m.content
			case "token_ids":
				if ids := elements(c); ids > 0 {
					m.content = true
					m.tokens += ids
				}
			case "finish_reason":
				m.aborted = string(c.text()) == "abort" || m.aborted
			default:
				c.skip()
			}
		}
	}
}

// readDelta reads a part of a message, OpenAI's or Anthropic's, or a whole one.
func (m *meaning) readDelta(c *cursor) {
	if !c.open('{') {
		c.skip()
		return
	}
	for n := 0; c.more('}', &n); {
		switch string(c.key()) {
		case "content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call", "audio",
			"text", "thinking", "partial_json", "signature":
			m.content = nonEmpty(c) || m.content
		default:
			c.skip()
		}
	}
}

// readBlock reads Anthropic's content_block: a tool's name is content, an empty
// text is not.
func (m *meaning) readBlock(c *cursor) {
	if !c.open('{') {
		c.skip()
		return
	}
	for n := 0; c.more('}', &n); {
		switch string(c.key()) {
		case "name", "text", "thinking":
			m.content = nonEmpty(c) || m.content
		default:
			c.skip()
		}
	}
}

// readNested reads the message of Anthropic's message_start, or the response of a
// Responses event.
func (m *meaning) readNested(c *cursor) {
	if !c.open('{') {
		c.skip()
		return
	}
	for n := 0; c.more('}', &n); {
		switch string(c.key()) {
		case "usage":
			m.usage.read(c)
		case "error":
			m.readError(c)
		default:
			c.skip()
		}
	}
}

// readError reads an error, if it is one: whole answers may have "error": null.
func (m *meaning) readError(c *cursor) {
	switch c.peek() {
	case '"':
		m.failed = len(c.text()) > 0 || m.failed
	case '{':
		c.open('{')
		m.failed = true
		for n := 0; c.more('}', &n); {
			if string(c.key()) == "code" {
				code, _ := c.number()
				m.clientErr = code >= 400 && code < 500
			} else {
				c.skip()
			}
		}
	default:
		c.skip()
	}
}

// nonEmpty reads any value and reports whether it is a string, list or object with
// something in it.
func nonEmpty(c *cursor) bool {
	switch c.peek() {
	case '"':
		return len(c.text()) > 0
	case '[', '{':
		start := c.i
		c.skip()
		return c.err == "" && len(bytes.TrimSpace(c.b[start+1:c.i-1])) > 0
	}
	c.skip()
	return false
}

// elements reads any value and returns how many elements it has, if it is a list.
func elements(c *cursor) (n int) {
	if !c.open('[') {
		c.skip()
		return 0
	}
	for c.more(']', &n) {
		c.skip()
	}
	return n
}

// read adds a usage object. Anthropic's input_tokens don't count what was read
// from or written to the cache, once the counts of those are given.
func (u *usage) read(c *cursor) {
	if !c.open('{') {
		c.skip()
		return
	}
	beside, counted := 0, false
	for n := 0; c.more('}', &n); {
		switch string(c.key()) {
		case "prompt_tokens", "input_tokens":
			if v, ok := c.number(); ok && v >= 0 {
				u.prompt, u.hasPrompt, counted = v, true, true
			}
		case "completion_tokens", "output_tokens":
			if v, ok := c.number(); ok && v >= 0 {
				u.output, u.hasOutput = v, true
			}
		case "prompt_tokens_details", "input_tokens_details":
			if !c.open('{') {
				c.skip()
				continue
			}
			for k := 0; c.more('}', &k); {
				if string(c.key()) == "cached_tokens" {
					if v, ok := c.number(); ok && v >= 0 {
						u.cached, u.hasCached = v, true
					}
				} else {
					c.skip()
				}
			}
		case "cache_read_input_tokens":
			if v, ok := c.number(); ok && v >= 0 {
				u.cached, u.hasCached = v, true
				beside += v
			}
		case "cache_creation_input_tokens":
			if v, ok := c.number(); ok && v >= 0 {
				beside += v
			}
		default:
			c.skip()
		}
	}
	if counted {
		u.prompt += beside
	}
}

// tailUsage finds the usage in the last bytes of a whole answer that was too long to
// be read whole.
func tailUsage(tail []byte) (u usage) {
	const name = `"usage"`
	i := bytes.LastIndex(tail, []byte(name))
	if i < 0 {
		return u
	}
	c := cursor{b: tail, i: i + len(name)}
	if c.peek() != ':' {
		return u
	}
	c.i++
	u.read(&c)
	if c.err != "" {
		return usage{}
	}
	return u
}
