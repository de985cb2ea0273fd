package mockserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"kvasir/zmtp"
)

func start(t *testing.T, edit func(*Config)) *Server {
	t.Helper()
	cfg := Defaults()
	cfg.Profile = cfg.Profile.Faster(50)
	cfg.Blocks = 256
	cfg.MaxLen = 4096
	if edit != nil {
		edit(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func words(n, from int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(" " + Word(from+i))
	}
	return b.String()
}

// TestCachedTokens: the second request is served floor((n-1)/16)*16 tokens from cache.
func TestCachedTokens(t *testing.T) {
	s := start(t, nil)
	body := fmt.Sprintf(`{"model":"modelled-8b","prompt":%q,"max_tokens":3}`, words(160, 0))
	for i, want := range []int{0, 144} {
		code, answer := post(t, s.URL()+"/v1/completions", body)
		var a struct {
			Usage struct {
				Prompt  int `json:"prompt_tokens"`
				Output  int `json:"completion_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		if err := json.Unmarshal([]byte(answer), &a); code != 200 || err != nil {
			t.Fatalf("%d %s: %v", code, answer, err)
		}
		if a.Usage.Prompt != 160 || a.Usage.Output != 3 || a.Usage.Details.Cached != want {
			t.Errorf("request %d: usage %+v, want 160 prompt tokens, 3 output, %d cached", i, a.Usage, want)
		}
	}
}

// TestStream reads a stream event by event and compares it with the whole answer.
func TestStream(t *testing.T) {
	s := start(t, nil)
	ask := `{"messages":[{"role":"user","content":"hello there"}],"max_tokens":5,"stream":%s}`
	_, whole := post(t, s.URL()+"/v1/chat/completions", fmt.Sprintf(ask, "false"))
	var w struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal([]byte(whole), &w); err != nil {
		t.Fatal(err)
	}
	_, sse := post(t, s.URL()+"/v1/chat/completions", fmt.Sprintf(ask, `true,"stream_options":{"include_usage":true}`))
	var text strings.Builder
	var last struct {
		Choices []struct {
			Delta  struct{ Role, Content string }
			Finish string `json:"finish_reason"`
		}
		Usage *struct {
			Completion int `json:"completion_tokens"`
		}
	}
	n, finish := 0, ""
	sc := bufio.NewScanner(strings.NewReader(sse))
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		last.Usage, last.Choices = nil, nil
		if err := json.Unmarshal([]byte(data), &last); err != nil {
			t.Fatal(err)
		}
		n++
		if len(last.Choices) == 1 {
			text.WriteString(last.Choices[0].Delta.Content)
			finish += last.Choices[0].Finish
		}
	}
	if text.String() != w.Choices[0].Message.Content || text.Len() != 25 {
		t.Errorf("streamed %q, whole %q", text.String(), w.Choices[0].Message.Content)
	}
	if n != 7 || finish != "length" || last.Usage == nil || last.Usage.Completion != 5 || !strings.HasSuffix(sse, "data: [DONE]\n\n") {
		t.Errorf("%d events, finish %q, usage %+v, want 7 (role, 5 tokens, usage), length, 5:\n%s", n, finish, last.Usage, sse)
	}
}

// TestEventsAndReplay subscribes late and asks for a replay from 0.
func TestEventsAndReplay(t *testing.T) {
	s := start(t, nil)
	post(t, s.URL()+"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, words(64, 0)))

	type message struct {
		topic   string
		seq     uint64
		payload []byte
	}
	live := make(chan message, 16)
	connected := make(chan struct{}, 1)
	sub, err := zmtp.NewSub(zmtp.SubConfig{
		Connected: func(*zmtp.Peer) { connected <- struct{}{} },
		Message: func(_ *zmtp.Peer, f [][]byte) {
			live <- message{string(f[0]), binary.BigEndian.Uint64(f[1]), bytes.Clone(f[2])}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if err := sub.Connect(s.EventsEndpoint()); err != nil {
		t.Fatal(err)
	}
	<-connected

	d, err := zmtp.DialDealer(context.Background(), zmtp.Config{}, s.ReplayEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Send(nil, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	f, err := d.Recv(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(f) != 4 || string(f[1]) != "kv-events" || binary.BigEndian.Uint64(f[2]) != 0 || !bytes.Contains(f[3], []byte("BlockStored")) {
		t.Fatalf("first answer %q", f)
	}
	if f, err = d.Recv(context.Background()); err != nil || len(f) != 4 || binary.BigEndian.Uint64(f[2]) != endOfReplay || len(f[3]) != 0 {
		t.Fatalf("end of the replay: %q, %v", f, err)
	}

	// The subscription may be on its way still: ask until one batch comes.
	for i := 1; ; i++ {
		post(t, s.URL()+"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, words(64, 100*i)))
		select {
		case m := <-live:
			if m.topic != "kv-events" || m.seq == 0 || !bytes.Contains(m.payload, []byte("BlockStored")) {
				t.Fatalf("live %+v", m)
			}
			return
		default:
			if i == 1000 {
				t.Fatal("no live batch after 1,000 requests")
			}
		}
	}
}

func TestErrors(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct {
		path, body string
		code       int
		says       string
	}{
		{"/v1/chat/completions", `{"model":"nope","messages":[]}`, 404, "The model `nope` does not exist. Valid aliases: modelled-8b."},
		{"/v1/chat/completions", `{"messages":[`, 400, "json_invalid"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "at least one message"},
		{"/v1/completions", `{"prompt":[]}`, 400, "You must pass at least one prompt"},
		{"/v1/completions", `{"prompt":""}`, 400, "cannot be empty"},
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q}`, words(4097, 0)), 400, "maximum context length is 4096 tokens"},
		{"/v1/completions", `{"prompt":"x","max_tokens":0}`, 400, "at least 1"},
		{"/v1/completions", `{"prompt":"x","stream_options":{}}`, 400, "stream=True"},
		{"/v1/embeddings", `{}`, 404, `{"detail":"Not Found"}`},
	} {
		code, answer := post(t, s.URL()+c.path, c.body)
		if code != c.code || !strings.Contains(answer, c.says) {
			t.Errorf("%s %.60s: %d %s, want %d with %q", c.path, c.body, code, answer, c.code, c.says)
		}
	}
}

// TestAbort: a client that goes away stops its request.
func TestAbort(t *testing.T) {
	s := start(t, func(c *Config) { c.Profile = c.Profile.Faster(1. / 50) })
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", s.URL()+"/v1/completions", strings.NewReader(`{"prompt":"x","max_tokens":4000,"stream":true}`))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Running != 1 {
		t.Fatalf("%+v, want 1 running", st)
	}
	cancel()
	resp.Body.Close()
	for s.Stats().Running != 0 { // each call is a turn of the loop's goroutine; go test's own limit ends a hang
	}
}

func TestRender(t *testing.T) {
	s := start(t, nil)
	_, a := post(t, s.URL()+"/v1/completions/render", `{"prompt":["baba"," bobo"],"cache_salt":"x"}`)
	var list []struct {
		TokenIDs []uint32 `json:"token_ids"`
		Salt     string   `json:"cache_salt"`
	}
	if err := json.Unmarshal([]byte(a), &list); err != nil || len(list) != 2 || len(list[0].TokenIDs) != 1 || list[1].Salt != "x" {
		t.Errorf("%s: %v", a, err)
	}
	_, chat := post(t, s.URL()+"/v1/chat/completions/render", `{"messages":[{"role":"user","content":[{"type":"text","text":"baba"}]}]}`)
	_, tok := post(t, s.URL()+"/tokenize", `{"messages":[{"role":"user","content":"baba"}]}`)
	var x struct {
		TokenIDs []uint32 `json:"token_ids"`
		Tokens   []uint32 `json:"tokens"`
	}
	json.Unmarshal([]byte(chat), &x)
	json.Unmarshal([]byte(tok), &x)
	if len(x.TokenIDs) == 0 || fmt.Sprint(x.TokenIDs) != fmt.Sprint(x.Tokens) {
		t.Errorf("render %s\ntokenize %s", chat, tok)
	}
}
