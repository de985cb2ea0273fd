package chat

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvasir/token/jinja"
)

// conversationBody makes a chat of the given number of turns with four tools; every third turn calls
// one and gets its result: 60 turns are 160 messages.
func conversationBody(turns int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"system","content":"You help with a warehouse. Be brief and exact."}`)
	for i := range turns {
		fmt.Fprintf(&b, `,{"role":"user","content":"Question %d: how many jars are on shelf %d, and which of them have \"lids\"? Please look at the back rows too, they are often forgotten.\nAnswer with numbers."}`, i, i*7)
		if i%3 == 0 {
			fmt.Fprintf(&b, `,{"role":"assistant","content":null,"tool_calls":[{"id":"call_%05d","type":"function","function":{"name":"count_items","arguments":"{\"shelf\": %d, \"kind\": \"jar\"}"}}]}`, i, i*7)
			fmt.Fprintf(&b, `,{"role":"tool","tool_call_id":"call_%05d","content":"{\"jars\": %d, \"lids\": %d}"}`, i, i*13%17, i%5)
		}
		fmt.Fprintf(&b, `,{"role":"assistant","content":"There are %d jars on shelf %d; %d of them have lids. The rest was sold in the spring, as far as the books say; the back rows were counted."}`, i*13%17, i*7, i%5)
	}
	b.WriteString(`,{"role":"user","content":"Thank you. And in all?"}],"tools":[`)
	for i, name := range []string{"count_items", "find_shelf", "move_items", "report"} {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":"function","function":{"name":"%s","description":"Tool number %d of the warehouse.","parameters":{"type":"object","properties":{"shelf":{"type":"integer","description":"Number of the shelf","minimum":0},"kind":{"type":"string","enum":["jar","lid","box"]},"note":{"type":"string"}},"required":["shelf"]}}}`, name, i)
	}
	b.WriteString(`],"temperature":0.7,"stream":true}`)
	return []byte(b.String())
}

func benchRenderer(b testing.TB, family string) *Renderer {
	dir := fixtures(b)
	src := readSources(b, dir)
	text := familyTemplate(b, dir, family, &src)
	if text == "" {
		b.Skipf("the template of %s was not fetched", family)
	}
	tpl, err := jinja.Compile(text)
	if err != nil {
		b.Fatal(err)
	}
	r, err := New(Config{Template: tpl, SpecialTokens: specialTokens(&src, family), Now: func() time.Time { return frozen }})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// cpu reports the CPU time of an operation: wall time says little on a shared machine.
func cpu(b *testing.B, f func()) {
	used := func() int64 {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	b.ReportAllocs()
	from := used()
	n := 0
	for b.Loop() {
		f()
		n++
	}
	b.ReportMetric(float64(used()-from)/float64(n)/1000, "cpu-us/op")
}

// BenchmarkParse60 is request parsing: JSON to the messages and tools that the template sees.
func BenchmarkParse60(b *testing.B) {
	body := conversationBody(60)
	b.SetBytes(int64(len(body)))
	cpu(b, func() {
		req := newRequest()
		if err := req.parse(body); err != nil {
			b.Fatal(err)
		}
		if _, err := req.conversation(jinja.StringContent); err != nil {
			b.Fatal(err)
		}
		req.release()
	})
}

// BenchmarkRender60 is the template alone, over a conversation that is parsed.
func BenchmarkRender60(b *testing.B) {
	for _, family := range []string{"qwen3", "qwen2_5", "llama3_2", "deepseek_v3", "gptoss", "glm4_6", "qwen3_coder"} {
		b.Run(family, func(b *testing.B) {
			r := benchRenderer(b, family)
			req := newRequest()
			if err := req.parse(conversationBody(60)); err != nil {
				b.Fatal(err)
			}
			conv, err := req.conversation(r.format[r.cfg.Template].format)
			if err != nil {
				b.Fatal(err)
			}
			vars, err := r.variables(r.mergeKwargs(req), r.cfg.Template)
			if err != nil {
				b.Fatal(err)
			}
			vars.Set("messages", jinja.ListOf(conv))
			vars.Set("tools", jinja.ListOf(req.tools))
			vars.Set("add_generation_prompt", jinja.Bool(true))
			var buf []byte
			cpu(b, func() {
				out, err := r.cfg.Template.AppendRender(buf[:0], vars, jinja.Env{Now: frozen})
				if err != nil {
					b.Fatal(err)
				}
				buf = out
			})
			b.ReportMetric(float64(len(buf)), "chars")
		})
	}
}

// BenchmarkChat60 is all of it, body to text.
func BenchmarkChat60(b *testing.B) {
	body := conversationBody(60)
	r := benchRenderer(b, "qwen3")
	h, _ := New(Config{Kind: KindHarmony, Now: func() time.Time { return frozen }})
	for name, r := range map[string]*Renderer{"qwen3": r, "harmony": h} {
		b.Run(name, func(b *testing.B) {
			cpu(b, func() {
				if _, err := r.Chat(body); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
