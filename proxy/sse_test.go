package proxy

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// events returns what the reader finds in a stream that comes in the given pieces.
func eventsOf(pieces ...string) (out []string, between bool) {
	var e eventReader
	e.data = func(d []byte) {
		if d == nil {
			out = append(out, "LONG")
			return
		}
		out = append(out, string(d))
	}
	for _, p := range pieces {
		b := []byte(p)
		e.feed(b)
		for i := range b {
			b[i] = 'X' // nothing may be kept of a read
		}
	}
	return out, e.between()
}

func TestEvents(t *testing.T) {
	long := strings.Repeat("y", maxEvent+1)
	for _, c := range []struct {
		name, stream string
		want         []string
		between      bool
	}{
		{"one", "data: a\n\n", []string{"a"}, true},
		{"no space", "data:a\n\n", []string{"a"}, true},
		{"two spaces", "data:  a\n\n", []string{" a"}, true},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}, true},
		{"CR", "data: a\r\rdata: b\r\r", []string{"a", "b"}, true},
		{"several lines of data", "data: a\ndata: b\ndata\n\n", []string{"a\nb\n"}, true},
		{"other fields", "event: x\nid: 1\ndata: a\nretry: 5\n\n", []string{"a"}, true},
		{"fields that look like data", "dataset: x\n\ndat: y\n\n", nil, true},
		{"comments", ": keep-alive\n\n:\n\ndata: a\n: in the middle\n\n", []string{"a"}, true},
		{"no data, no event", "event: x\n\n\n\n", nil, true},
		{"byte order mark", "\ufeffdata: a\n\n", []string{"a"}, true},
		{"mark later on", "data: a\n\n\ufeffdata: b\n\n", []string{"a"}, true},
		{"open event", "data: a\n", nil, false},
		{"open line", "data: a\n\ndat", []string{"a"}, false},
		{"open comment", "data: a\n\n: x", []string{"a"}, false},
		{"field without data", "event: x\n", nil, false},
		{"too long", "data: " + long + "\n\ndata: a\n\n", []string{"LONG", "a"}, true},
		{"too long in lines", strings.Repeat("data: "+long[:1000]+"\n", 300) + "\ndata: a\n\n", []string{"LONG", "a"}, true},
		{"comment too long", ": " + long + "\n\ndata: a\n\n", []string{"a"}, true},
		{"nothing", "", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 7, 1000, 16384, 1 << 30} {
				if size == 1 && len(c.stream) > 100_000 {
					continue
				}
				var pieces []string
				for s := range slices.Chunk([]byte(c.stream), min(size, len(c.stream)+1)) {
					pieces = append(pieces, string(s))
				}
				got, between := eventsOf(pieces...)
				if c.name == "too long" && size == 1<<30 {
					c.want = []string{long, "a"} // one read has it whole: nothing to keep
				}
				if !slices.Equal(got, c.want) || between != c.between {
					t.Errorf("in pieces of %d: %.100q, between %v", size, got, between)
				}
			}
		})
	}
}

// A line without an end costs no memory.
func TestEndlessLine(t *testing.T) {
	w := newWatcher()
	w.events.feed([]byte("data: "))
	chunk := bytes.Repeat([]byte("a"), 16<<10)
	for range 1000 {
		w.events.feed(chunk)
	}
	if n := cap(w.events.line) + cap(w.events.kept); n > 3*maxEvent {
		t.Errorf("%d bytes kept", n)
	}
	if w.content {
		t.Error("half an event counts as content")
	}
	w.events.feed([]byte("\n\ndata: {\"usage\":{\"prompt_tokens\":7}}\n\n"))
	if !w.content || w.usage.prompt != 7 {
		t.Errorf("content %v, usage %+v", w.content, w.usage)
	}
}

// FuzzEvents: however a stream is cut, the same events come out; reading them never
// fails, and what is read of one makes sense.
func FuzzEvents(f *testing.F) {
	for _, r := range recordings(f) {
		if r.Stream {
			f.Add([]byte(r.Answer), uint8(17))
		}
	}
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":1e9}}\r\n\r\n: x\rdata\r\r"), uint8(1))
	f.Add([]byte("event: error\ndata: {\"error\":{\"code\":\"4\",\"code\":404}}\n\n"), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		whole, wb := eventsOf(string(b))
		var pieces []string
		for s := range slices.Chunk(b, int(size)+1) {
			pieces = append(pieces, string(s))
		}
		cut, cb := eventsOf(pieces...)
		if wb != cb || !slices.Equal(whole, cut) {
			t.Fatalf("whole %q %v\ncut   %q %v", whole, wb, cut, cb)
		}
		var one, many stripper
		out := one.filter(b)
		var parts []byte
		for _, p := range pieces {
			parts = append(parts, many.filter([]byte(p))...)
		}
		if !bytes.Equal(out, parts) || !bytes.Equal(one.open, many.open) || len(out)+len(one.open) > len(b) {
			t.Fatalf("stripped whole %q %q\ncut %q %q", out, one.open, parts, many.open)
		}
		w := newWatcher()
		defer w.put()
		w.events.feed(b)
		u := w.usage
		if u.prompt < 0 || u.cached < 0 || u.output < 0 || w.tokens < 0 || w.content && w.aborted {
			t.Fatalf("%+v", w)
		}
		tailUsage(b)
		w.whole(b)
	})
}

// A relayed chunk costs no allocation.
func TestWatchingAllocatesNothing(t *testing.T) {
	w := newWatcher()
	defer w.put()
	chunk := []byte(chatRole + chatA + keepAlive + chatB + chatUsage + chatDone)
	half := len(chunk) / 2
	w.events.feed(chunk)
	w.events.feed(chunk[:half])
	w.events.feed(chunk[half:])
	if n := testing.AllocsPerRun(100, func() {
		w.events.feed(chunk)
		w.events.feed(chunk[:half])
		w.events.feed(chunk[half:])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkWatch(b *testing.B) {
	chunk := []byte(`data: {"id":"chatcmpl-ac30f5ef66489e10","object":"chat.completion.chunk","created":1795971704,"model":"tiny-qwen3","choices":[{"index":0,"delta":{"content":"word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n")
	w := newWatcher()
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		w.events.feed(chunk)
	}
}
