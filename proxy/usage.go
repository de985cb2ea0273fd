package proxy

import (
	"bytes"

	"kvasir/token"
)

// askUsage asks for the usage of a stream, if its client did not: see Config.AskUsage.
func (c *call) askUsage() {
	if !c.p.cfg.AskUsage || !c.f.stream || c.f.options || c.rt.kind != token.Chat && c.rt.kind != token.Completions {
		return
	}
	b := c.body.b
	at := bytes.IndexByte(b, '{') + 1 // there is one, with "stream" in it
	const ask = `"stream_options":{"include_usage":true},`
	out := make([]byte, 0, len(b)+len(ask))
	out = append(append(append(out, b[:at]...), ask...), b[at:]...)
	c.body.b = out
	c.asked = true
}

// A stripper takes the chunk out of a stream that has usage and no choices: it
// came because we asked. To see an event whole it holds the start of one back.
type stripper struct {
	open []byte // of an event that isn't complete
	line int    // where its last line begins
	out  []byte
}

// filter returns what may be sent once p has come; valid until the next call.
func (s *stripper) filter(p []byte) []byte {
	s.out = s.out[:0]
	seen := len(s.open) // no line ends before
	s.open = append(s.open, p...)
	start := 0
	for {
		n := bytes.IndexByte(s.open[seen:], '\n')
		if n < 0 {
			break
		}
		seen += n + 1
		line := s.open[s.line:seen]
		s.line = seen
		if len(line) > 2 || len(line) == 2 && line[0] != '\r' {
			continue
		}
		if event := s.open[start:seen]; !usageOnly(event) { // ended by a blank line
			s.out = append(s.out, event...)
		}
		start = seen
	}
	if len(s.open)-start > maxEvent { // this is no chunk of usage
		s.out = append(s.out, s.open[start:]...)
		start = len(s.open)
		s.line = start
	}
	s.open = append(s.open[:0], s.open[start:]...)
	s.line -= start
	return s.out
}

// usageOnly reports whether an event is a chunk with usage and an empty list of choices.
func usageOnly(event []byte) bool {
	data, ok := bytes.CutPrefix(event, []byte("data:"))
	if !ok || !bytes.Contains(data, []byte(`"usage"`)) {
		return false
	}
	c := cursor{b: data}
	if !c.open('{') {
		return false
	}
	empty, told := false, false
	for n := 0; c.more('}', &n); {
		switch string(c.key()) {
		case "choices":
			empty = c.peek() == '[' && !nonEmpty(&c)
		case "usage":
			told = c.peek() == '{'
			c.skip()
		default:
			c.skip()
		}
	}
	return c.err == "" && empty && told
}
