// Package tokenbench measures how fast requests become tokens and blocks: CPU
// seconds of one thread, on generated text, with the tokenizer and the template of
// a real model.
package tokenbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/kv"
	"kvasir/token"
	"kvasir/token/bpe"
	"kvasir/token/chat"
	"kvasir/token/jinja"
)

// A Report is what --json prints. Fields are added, never changed.
type Report struct {
	Version  int      `json:"version"`
	Encode   []Encode `json:"encode"`
	Render   float64  `json:"render_us"` // 60 turns with tools: messages to text
	Parse    float64  `json:"parse_us"`  // of the same: JSON to messages
	NextTurn NextTurn `json:"next_turn_us"`
	Load     float64  `json:"load_s"`             // CPU seconds to load the tokenizer and the template
	Resident float64  `json:"resident_mb"`        // 10^6 bytes that loading added to the resident memory
	NoChat   string   `json:"no_chat,omitempty"`  // why no chats were measured
	NoTools  string   `json:"no_tools,omitempty"` // why the 60 turns have no tools
}

// Encode is the speed on fresh text of one kind, in texts of Bytes each.
type Encode struct {
	Text  string  `json:"text"`
	Bytes int     `json:"bytes"`
	MBps  float64 `json:"mb_per_cpu_s"` // 10^6 bytes of UTF-8 per CPU second
}

// NextTurn is one more turn of 2 KB in a conversation of 100,000 tokens, from the
// body to the hashes of blocks of 16; CPU microseconds.
type NextTurn struct {
	P50    float64 `json:"p50"`
	Cold   float64 `json:"cold"` // p50 where no beginning of the conversation was seen before
	Tokens int     `json:"tokens"`
	Bytes  int     `json:"bytes"` // of the body
	Allocs float64 `json:"allocs"`
	// Floor is one pass over the body that does no more than find its strings'
	// ends and check its UTF-8: what a next turn can't be cheaper than.
	Floor float64 `json:"floor"`
}

// Run loads a model with open and measures it.
func Run(open func() (*token.Model, error)) (Report, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The collector runs in other threads, but its assists in this one: they are
	// part of the cost and counted.
	out := Report{Version: 1}
	before, began := resident(), processCPU() // loading may use several threads
	m, err := open()
	if err != nil {
		return out, err
	}
	out.Load = (processCPU() - began).Seconds()
	if before > 0 {
		out.Resident = (resident() - before) / 1e6
	}
	for _, kind := range Kinds {
		for _, size := range []int{8 << 10, 64 << 10} {
			out.Encode = append(out.Encode, Encode{kind, size, encode(m.Tokenizer(), kind, size)})
		}
	}
	if m.Renderer() == nil {
		out.NoChat = m.NoChat()
		return out, nil
	}
	if out.Parse, out.Render, err = parseAndRender(m.Renderer(), manyTurns(60, true)); err != nil {
		out.NoTools = err.Error() // Gemma 3's template refuses them
		if out.Parse, out.Render, err = parseAndRender(m.Renderer(), manyTurns(60, false)); err != nil {
			return out, err
		}
	}
	out.NextTurn, err = nextTurn(m)
	runtime.KeepAlive(m)
	return out, err
}

// encode measures texts of one size, none of which comes twice: the best of three
// corpora with different words, since a shared machine only ever takes time away.
func encode(t *bpe.Tokenizer, kind string, size int) (best float64) {
	for seed := range uint64(3) {
		c := NewCorpus(7+seed, 6000)
		warm, all := c.Text(kind, 500_000), c.Text(kind, 2_000_000/size*size)
		dst := t.Encode(make([]uint32, 0, len(all)), warm, false)
		began := threadCPU()
		for i := 0; i < len(all); i += size {
			dst = t.Encode(dst[:0], all[i:i+size], false)
		}
		best = max(best, float64(len(all))/1e6/(threadCPU()-began).Seconds())
	}
	return best
}

// parseAndRender returns CPU microseconds. Parsing is the whole way with a template
// that writes nothing; rendering is what the model's own template adds to it.
func parseAndRender(r *chat.Renderer, body []byte) (parse, render float64, err error) {
	nothing, err := jinja.Compile("{% if messages %}{% endif %}")
	if err != nil {
		return 0, 0, err
	}
	silent, err := chat.New(chat.Config{Template: nothing, Format: "string", Now: time.Now})
	if err != nil {
		return 0, 0, err
	}
	if parse, err = chatTime(silent, body); err != nil {
		return 0, 0, err
	}
	all, err := chatTime(r, body)
	return parse, all - parse, err
}

func chatTime(r *chat.Renderer, body []byte) (float64, error) {
	var took []float64
	for range 200 {
		began := threadCPU()
		if _, err := r.Chat(body); err != nil {
			return 0, fmt.Errorf("the measured conversation: %w", err)
		}
		took = append(took, micros(threadCPU()-began))
	}
	return median(took), nil
}

const (
	blockSize  = 16
	wantTokens = 100_000
	turnBytes  = 2000
)

// nextTurn measures the turns by which a conversation grows from 90 % to about
// 110 % of wantTokens.
func nextTurn(m *token.Model) (out NextTurn, err error) {
	v, b, err := grown(m)
	if err != nil {
		return out, err
	}
	var warm, cold, floor, tokens, size []float64
	for range 30 {
		v.turn(turnBytes)
		body := v.body()
		began := threadCPU()
		n, err := b.run(body)
		warm = append(warm, micros(threadCPU()-began))
		if err != nil {
			return out, err
		}
		began = threadCPU()
		runtime.KeepAlive(pass(body))
		floor = append(floor, micros(threadCPU()-began))
		tokens, size = append(tokens, float64(n)), append(size, float64(len(body)))
	}
	for i := range 20 {
		w := &conversation{c: NewCorpus(100+uint64(i), 6000)}
		for w.turns < v.turns-15 {
			w.turn(turnBytes)
		}
		b, body := newBench(m), w.body()
		began := threadCPU()
		if _, err := b.run(body); err != nil {
			return out, err
		}
		cold = append(cold, micros(threadCPU()-began))
	}
	out.P50, out.Cold, out.Floor = median(warm), median(cold), median(floor)
	out.Tokens, out.Bytes = int(median(tokens)), int(median(size))
	body := v.body()
	out.Allocs = allocs(20, func() { b.run(body) })
	return out, nil
}

// grown returns a conversation of 90 % of wantTokens, and a bench that has seen
// each turn of it.
func grown(m *token.Model) (*conversation, *bench, error) {
	v, b := &conversation{c: NewCorpus(11, 6000)}, newBench(m)
	for n := 0; n < wantTokens*9/10; {
		v.turn(turnBytes)
		var err error
		if n, err = b.run(v.body()); err != nil {
			return nil, nil, err
		}
	}
	return v, b, nil
}

// A bench is the way from a body to hashes, as package proxy goes it.
type bench struct {
	local  *token.Local
	hashes []kv.Hash
}

func newBench(m *token.Model) *bench {
	never := token.SourceFunc(func(context.Context, *token.Request) token.Result {
		return token.Result{Why: "no engine in a benchmark"}
	})
	l := token.NewLocal(token.LocalConfig{CacheBytes: 256 << 20}, never, nil)
	l.Set("m", m)
	return &bench{local: l}
}

func (b *bench) run(body []byte) (tokens int, err error) {
	res := b.local.Tokens(context.Background(), &token.Request{Endpoint: token.Chat, Model: "m", Body: body})
	if len(res.Prompts) == 0 {
		return 0, errors.New("no tokens were made here: " + res.Why)
	}
	const seed = kv.Seed(1)
	ids := res.Prompts[0].IDs
	b.hashes = seed.Extend(b.hashes[:0], seed.Root(kv.Key{Model: "m", Salt: res.Salt}, blockSize), ids, blockSize, nil)
	return len(ids), nil
}

// pass is the floor: each byte is looked at once.
func pass(body []byte) (quotes int) {
	for _, c := range body {
		if c == '"' || c == '\\' || c >= 0x80 {
			quotes++
		}
	}
	return quotes
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// allocs is testing.AllocsPerRun without package testing.
func allocs(runs int, f func()) float64 {
	f()
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&b)
	return float64(b.Mallocs-a.Mallocs) / float64(runs)
}

// resident returns the resident memory of this process in bytes (Linux; 0
// elsewhere), after all free memory was given back.
func resident() float64 {
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseFloat(f[1], 64)
	if err != nil {
		return 0
	}
	return pages * float64(os.Getpagesize())
}
