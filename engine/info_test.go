package engine

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
)

// recorded returns the body of a recorded answer.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/vllm", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Response struct {
			Body string `json:"body_raw"`
		} `json:"response"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return []byte(r.Response.Body)
}

// answers is an HTTP engine of fixed answers.
type answers map[string]string

func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	body, ok := a[req.URL.Path]
	status := http.StatusOK
	if !ok {
		status = http.StatusNotFound
	}
	if code, rest, cut := strings.Cut(body, " "); cut && len(code) == 3 {
		fmt.Sscan(code, &status)
		body = rest
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func (a answers) client() *client {
	return &client{base: "http://engine:8000", http: &http.Client{Transport: a}, timeout: time.Minute}
}

func TestModels(t *testing.T) {
	c := answers{"/v1/models": string(recorded(t, "lora_lora_models")), "/version": string(recorded(t, "main_version"))}.client()
	models, owner, err := c.models(context.Background())
	want := []kv.Model{{ID: "tiny-qwen3", Root: "model", MaxLen: 1024}, {ID: "support-bot", Root: "lora", Parent: "tiny-qwen3", MaxLen: 1024}}
	if err != nil || owner != "vllm" || !reflect.DeepEqual(models, want) {
		t.Errorf("%+v %q %v", models, owner, err)
	}
	if v, err := c.version(context.Background()); v != "0.32.0" || err != nil {
		t.Errorf("%q %v", v, err)
	}
	for body, want := range map[string]string{
		"401 {}":        "API key",
		"500 it\nbroke": "500 it",
		"nonsense":      `"nonsense"`,
		`{"data":[{}]}`: "",
	} {
		_, _, err := answers{"/v1/models": body}.client().models(context.Background())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
	if _, err := (answers{"/x": strings.Repeat("a", maxBody+1)}).client().get(context.Background(), "/x"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a giant body: %v", err)
	}
	if err := (answers{}).client().health(context.Background()); err != nil {
		t.Errorf("no health route: %v", err)
	}
	if err := (answers{"/health": "503 dead"}).client().health(context.Background()); err == nil {
		t.Error("503 is healthy")
	}
}

func TestSources(t *testing.T) {
	for _, c := range []struct {
		name, body, host string
		want             []Source
		err              string
	}{
		{"recorded, by rank, mapped loopback and loopback from another host", string(recorded(t, "dp2_dp_kv_event_sources")), "10.0.0.1", []Source{
			{0, "tcp://10.0.0.1:8401", "tcp://10.0.0.1:8405", "kv-events"}, {1, "tcp://10.0.0.1:8402", "tcp://10.0.0.1:8406", "kv-events"}}, ""},
		{"recorded, on the same host", string(recorded(t, "lora_kv_event_sources")), "127.0.0.1", []Source{
			{0, "tcp://127.0.0.1:8201", "tcp://127.0.0.1:8202", "kv@replica-0@tiny-qwen3"}}, ""},
		{"recorded, no topic", string(recorded(t, "misc_kv_event_sources")), "127.0.0.1", []Source{{0, "tcp://127.0.0.1:8601", "tcp://127.0.0.1:8605", ""}}, ""},
		{"a sources list", `{"sources":[{"data_parallel_rank":1,"endpoint":"tcp://10.0.0.5:41002","replay_endpoint":null,"topic":"kv"},{"data_parallel_rank":0,"endpoint":"tcp://10.0.0.5:41001"}]}`, "10.0.0.1", []Source{
			{0, "tcp://10.0.0.5:41001", "", ""}, {1, "tcp://10.0.0.5:41002", "", "kv"}}, ""},
		{"a bare list, wildcards, IPv6 host", `[{"endpoint":"tcp://*:5557","replay_endpoint":"tcp://0.0.0.0:5558"},{"endpoint":"tcp://[::]:5559"},{"endpoint":"tcp://:::5561"}]`, "2001:db8::1", []Source{
			{0, "tcp://[2001:db8::1]:5557", "tcp://[2001:db8::1]:5558", ""}, {1, "tcp://[2001:db8::1]:5559", "", ""}, {2, "tcp://[2001:db8::1]:5561", "", ""}}, ""},
		{"ipc", `[{"endpoint":"ipc:///tmp/kv"}]`, "localhost", []Source{{0, "ipc:///tmp/kv", "", ""}}, ""},
		{"switched off", `{"0":{"enable_kv_cache_events":false,"publisher":"null","endpoint":"tcp://*:5557"}}`, "h", nil, "publishes no KV events"},
		{"publisher null", `{"0":{"enable_kv_cache_events":true,"publisher":"null","endpoint":"tcp://*:5557"}}`, "h", nil, "publishes no KV events"},
		{"nothing", `{}`, "h", nil, "publishes no KV events"},
		{"a rank twice", `[{"data_parallel_rank":1,"endpoint":"tcp://*:1"},{"data_parallel_rank":1,"endpoint":"tcp://*:2"}]`, "h", nil, "rank 1 is there twice"},
		{"a rank out of range", `{"5000":{"endpoint":"tcp://*:1"}}`, "h", nil, "rank 5000"},
		{"a bad port", `[{"endpoint":"tcp://*:70000"}]`, "h", nil, `port "70000": want 1 to 65535`},
		{"another transport", `[{"endpoint":"udp://*:7"}]`, "h", nil, "want tcp://"},
		{"no JSON", `<html>`, "h", nil, "invalid character"},
	} {
		got, err := parseSources([]byte(c.body), c.host)
		if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v; want %+v, %q", c.name, got, err, c.want, c.err)
		}
	}
}

func TestServerInfo(t *testing.T) {
	const body = `{"version":"0.5.4","page_size":16,"max_total_num_tokens":4096,"chunked_prefill_size":8192,"schedule_low_priority_values_first":true,"model_path":"x",
		"kv_events_config":"{\"publisher\":\"zmq\",\"replay_endpoint\":\"tcp://*:6000\"}",
		"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,"topic":"kv","block_size":64,"dp_size":2}}`
	var i Info
	c := answers{"/server_info": body}.client()
	got, err := c.sources(context.Background(), "10.0.0.1", &i)
	want := []Source{{0, "tcp://10.0.0.1:5557", "tcp://10.0.0.1:6000", "kv"}, {1, "tcp://10.0.0.1:5558", "tcp://10.0.0.1:6001", "kv"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	if i.Kind != "sglang" || i.Version != "0.5.4" || i.BlockSize != 64 || i.Blocks != 64 || i.MaxBatch != 8192 || !i.LowFirst {
		t.Errorf("%+v", i)
	}
	if _, err := (answers{"/get_server_info": `{"kv_events":null}`}).client().sources(context.Background(), "h", &i); !errors.Is(err, errNoEvents) {
		t.Errorf("no events: %v", err)
	}
	if _, err := (answers{}).client().sources(context.Background(), "h", &i); err == nil || !strings.Contains(err.Error(), "configure the endpoint") {
		t.Errorf("an engine that doesn't tell: %v", err)
	}
	if _, err := (answers{"/server_info": `{"kv_events":{"publisher":"zmq","endpoint_port_base":65535,"dp_size":2}}`}).client().sources(context.Background(), "h", &i); err == nil {
		t.Error("port 65536 passed")
	}
}

func TestEndpointOfRank(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		rank     int
		want     string
	}{
		{"tcp://10.0.0.1:5557", 3, "tcp://10.0.0.1:5560"},
		{"tcp://[::1]:5557", 1, "tcp://[::1]:5558"},
		{"tcp://host:65535", 1, ""},
		{"tcp://*:5557", 0, ""},
		{"tcp://host", 0, ""},
		{"tcp://host:0", 0, ""},
		{"ipc:///x", 0, "ipc:///x"},
		{"ipc:///x", 1, ""},
		{"inproc://x", 0, ""},
	} {
		got, err := endpointOfRank(c.endpoint, c.rank)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s rank %d: %q %v, want %q", c.endpoint, c.rank, got, err, c.want)
		}
	}
}

func TestMetrics(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	read := func(name string) metrics {
		text, err := os.ReadFile("testdata/vllm/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return parseMetrics(string(text), at)
	}
	m := read("metrics.txt")
	if !m.vllm || m.started != 1.79597158463e+09 || m.blockSize != 32 || m.blocks != 48 || len(m.ranks) != 1 {
		t.Errorf("%+v", m)
	}
	if r := m.ranks[0]; r != (Rank{Gauge: kv.Gauge{At: at}, Queries: 8461, Hits: 1952}) {
		t.Errorf("%+v", r)
	}
	if m := read("load_metrics.txt"); m.ranks[0].Running != 6 || m.ranks[0].Waiting != 0 || m.ranks[0].KVUsage < 0.5 {
		t.Errorf("under load: %+v", m.ranks)
	}
	if m := read("dp2_metrics.txt"); len(m.ranks) != 2 || !m.ranks[0].Known() || !m.ranks[1].Known() {
		t.Errorf("two ranks: %+v", m.ranks)
	}
	m = parseMetrics(`# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="a,b\"}",tp_rank="0",dp_rank="0"} 2
sglang:num_running_reqs{tp_rank="1",dp_rank="0"} 2
sglang:num_running_reqs{tp_rank="0",dp_rank="1"} 5 1700000000000
sglang:num_queue_reqs{tp_rank="0", dp_rank="1",} 1.0
sglang:token_usage{tp_rank="0",dp_rank="1"} 0.25
vllm:engine_sleep_state{engine="3",sleep_state="discard_all"} 1.0
vllm:num_requests_running{engine="99999"} 7
vllm:num_requests_running{engine="0"} NaN
vllm:num_requests_running{engine="0" 3
vllm:num_requests_running{engine="0"}
vllm:num_requests_waiting{engine="0
`, at)
	want := []Rank{{Gauge: kv.Gauge{Running: 2, At: at}}, {Gauge: kv.Gauge{Running: 5, Waiting: 1, KVUsage: 0.25, At: at}}, {}, {Asleep: true}}
	if !m.sglang || !reflect.DeepEqual(m.ranks, want) {
		t.Errorf("%+v", m)
	}
}

// TestReplayFrames reads recorded replays: with topic, truncated, nothing to
// send, none at all, and through a REQ socket.
func TestReplayFrames(t *testing.T) {
	for _, c := range []struct {
		name  string
		first uint64
		n     int
		end   bool
	}{
		{"replay_lora_buffer_5_from_0", 5, 5, true},
		{"replay_dp2_dp_rank1_from_0", 0, 2, true},
		{"replay_main_dealer_from_future", 0, 0, true},
		{"replay_main_dealer_no_delimiter", 0, 0, false},
		{"replay_main_req_from_0", 0, 1, false},
	} {
		text, err := os.ReadFile("testdata/vllm/" + c.name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		n, ended := 0, false
		for line := range strings.Lines(string(text)) {
			var m struct {
				Dir    string   `json:"dir"`
				Frames []string `json:"frames_hex"`
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			if m.Dir != "recv" {
				continue
			}
			var frames [][]byte
			for _, f := range m.Frames {
				p, _ := hex.DecodeString(f)
				frames = append(frames, p)
			}
			seq, payload, end, ok := replayFrames(frames)
			if !ok || ended {
				t.Errorf("%s: %d frames: ok %v, after the end %v", c.name, len(frames), ok, ended)
			}
			if end {
				ended = true
				continue
			}
			if seq != c.first+uint64(n) || len(payload) < 20 {
				t.Errorf("%s: answer %d has number %d, want %d", c.name, n, seq, c.first+uint64(n))
			}
			n++
		}
		if n != c.n || ended != c.end {
			t.Errorf("%s: %d answers, ended %v; want %d, %v", c.name, n, ended, c.n, c.end)
		}
	}
	old := [][]byte{nil, {0, 0, 0, 0, 0, 0, 0, 9}, []byte("x")} // before 0.28, and SGLang
	for _, frames := range [][][]byte{old, old[1:], append([][]byte{nil}, old...)} {
		if seq, payload, end, ok := replayFrames(frames); seq != 9 || string(payload) != "x" || end || !ok {
			t.Errorf("%d frames: %d %q %v %v", len(frames), seq, payload, end, ok)
		}
	}
	for _, frames := range [][][]byte{nil, {[]byte("x")}, {[]byte("nine bytes"), []byte("x")}, {nil, nil}} {
		if _, _, end, ok := replayFrames(frames); ok || end {
			t.Errorf("%q passed for an answer", frames)
		}
	}
}

// F19: publishers that send fewer frames, or other numbers.
func TestLiveFrames(t *testing.T) {
	eight := []byte{0, 0, 0, 0, 0, 0, 0, 7}
	for _, c := range []struct {
		frames []string
		kind   entryKind
		topic  string
		seq    uint64
	}{
		{[]string{"kv", string(eight), "p"}, gotBatch, "kv", 7},
		{[]string{"", string(eight), "p"}, gotBatch, "", 7},
		{[]string{"", "kv", string(eight), "p"}, gotBatch, "kv", 7},
		{[]string{"kv", "\x00\x00\x00\x07", "p"}, gotBatch, "kv", 7},
		{[]string{"kv", "", "p"}, gotPlain, "kv", 0},
		{[]string{"kv", "p"}, gotPlain, "kv", 0},
		{[]string{"p"}, gotPlain, "", 0},
		{nil, gotUnreadable, "", 0},
	} {
		var frames [][]byte
		for _, f := range c.frames {
			frames = append(frames, []byte(f))
		}
		kind, topic, seq, payload := liveFrames(frames)
		if kind != c.kind || string(topic) != c.topic || seq != c.seq || kind != gotUnreadable && string(payload) != "p" {
			t.Errorf("%q: %v %q %d %q", c.frames, kind, topic, seq, payload)
		}
	}
}

func FuzzInfo(f *testing.F) {
	for _, name := range []string{"dp2_dp_kv_event_sources", "lora_lora_models"} {
		f.Add(recorded(f, name))
	}
	f.Add([]byte(`vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="48"} 1.0`))
	f.Add([]byte(`{"kv_events":{"publisher":"zmq","endpoint_port_base":1,"dp_size":2}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if s, err := parseSources(body, "10.0.0.1"); err == nil && len(s) == 0 {
			t.Error("no source, no error")
		}
		var i Info
		if s, err := parseServerInfo(body, "10.0.0.1", &i); err == nil && len(s) == 0 {
			t.Error("no source, no error")
		}
		if m := parseMetrics(string(body), time.Time{}); len(m.ranks) > 1024 {
			t.Errorf("%d ranks", len(m.ranks))
		}
	})
}
