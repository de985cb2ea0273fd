package tokenbench

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A conversation grows by turns, as a client's does: every body has all messages
// of the one before.
type conversation struct {
	c        *Corpus
	messages bytes.Buffer
	turns    int
}

// turn adds an answer and a question with size bytes of text together; the first
// turn is the system's and the first question. Mostly prose, then code and JSON.
func (v *conversation) turn(size int) {
	kind := []string{"prose", "code", "prose", "json", "prose"}[v.turns%5]
	role := "assistant"
	if v.turns == 0 {
		role = "system"
	} else {
		v.messages.WriteByte(',')
	}
	v.turns++
	v.message(role, v.text(kind, size*3/4))
	v.messages.WriteByte(',')
	v.message("user", v.text("prose", size/4))
}

func (v *conversation) text(kind string, size int) string {
	b := v.c.Text(kind, size)
	for len(b) > 0 && !utf8.Valid(b) {
		b = b[:len(b)-1]
	}
	return string(b)
}

func (v *conversation) message(role, content string) {
	b, err := jsontext.AppendQuote(nil, content)
	if err != nil {
		panic(err) // the text is UTF-8
	}
	fmt.Fprintf(&v.messages, `{"role":"%s","content":%s}`, role, b)
}

// body returns the request as it stands.
func (v *conversation) body() []byte {
	return fmt.Appendf(nil, `{"model":"m","messages":[%s],"temperature":0.7,"stream":true}`, v.messages.Bytes())
}

// manyTurns makes a chat of many short turns, with four tools or without; every
// third turn calls one and gets its result: 60 turns are 162 messages.
func manyTurns(turns int, tools bool) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"system","content":"You help with a warehouse. Be brief and exact."}`)
	for i := range turns {
		fmt.Fprintf(&b, `,{"role":"user","content":"Question %d: how many jars are on shelf %d, and which of them have \"lids\"? Please look at the back rows too, they are often forgotten.\nAnswer with numbers."}`, i, i*7)
		if tools && i%3 == 0 {
			fmt.Fprintf(&b, `,{"role":"assistant","content":null,"tool_calls":[{"id":"call%05d","type":"function","function":{"name":"count_items","arguments":"{\"shelf\": %d, \"kind\": \"jar\"}"}}]}`, i, i*7)
			fmt.Fprintf(&b, `,{"role":"tool","tool_call_id":"call%05d","content":"{\"jars\": %d, \"lids\": %d}"}`, i, i*13%17, i%5)
		}
		fmt.Fprintf(&b, `,{"role":"assistant","content":"There are %d jars on shelf %d; %d of them have lids. The rest was sold in the spring, as far as the books say; the back rows were counted."}`, i*13%17, i*7, i%5)
	}
	b.WriteString(`,{"role":"user","content":"Thank you. And in all?"}],"temperature":0.7,"stream":true`)
	if !tools {
		b.WriteByte('}')
		return []byte(b.String())
	}
	b.WriteString(`,"tools":[`)
	for i, name := range []string{"count_items", "find_shelf", "move_items", "report"} {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":"function","function":{"name":"%s","description":"Tool number %d of the warehouse.","parameters":{"type":"object","properties":{"shelf":{"type":"integer","description":"Number of the shelf","minimum":0},"kind":{"type":"string","enum":["jar","lid","box"]},"note":{"type":"string"}},"required":["shelf"]}}}`, name, i)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}
