package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"kvasir/fleet"
)

// storing is an engine with the Responses API's store: it knows its own answers only,
// as vLLM does (testdata: main_responses_previous_id).
func storing(name string) http.HandlerFunc {
	known, n := map[string]bool{}, 0
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		f, _, _ := readFields(b)
		about, stored := f.previous, strings.HasPrefix(r.URL.Path, storedPath)
		if stored {
			about, _, _ = strings.Cut(r.URL.Path[len(storedPath):], "/")
		}
		w.Header().Set("Content-Type", "application/json")
		if about != "" && !known[about] {
			w.WriteHeader(404)
			fmt.Fprintf(w, `{"error":{"message":"Response with id '%s' not found.","type":"invalid_request_error","param":"response_id","code":404}}`, about)
			return
		}
		if stored {
			fmt.Fprintf(w, `{"id":%q,"object":"response","status":"completed"}`, about)
			return
		}
		n++
		id := fmt.Sprintf("resp_%s%d", name, n)
		known[id] = !f.unstored
		if f.stream {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: response.created\ndata: {\"response\":{\"id\":%q,\"status\":\"in_progress\",\"usage\":null},\"type\":\"response.created\"}\n\n", id)
			fmt.Fprintf(w, "event: response.output_text.delta\ndata: {\"delta\":\"A\",\"item_id\":\"msg_1\",\"type\":\"response.output_text.delta\"}\n\n")
			return
		}
		fmt.Fprintf(w, `{"id":%q,"object":"response","output":[{"id":"msg_1","type":"message","content":[{"text":%q,"type":"output_text"}]}],"status":"completed"}`,
			id, strings.Repeat("long ", 10*f.output))
	}
}

// What builds on a stored answer goes to the engine that has it, and so do reading
// and cancelling it.
func TestStoredAnswersAreWhereTheyWereMade(t *testing.T) {
	for _, c := range []struct{ name, body string }{
		{"whole", `{"model":"m","input":"hi"}`},
		{"stream", `{"model":"m","input":"hi","stream":true}`},
		{"longer than what is held back", `{"model":"m","input":"hi","max_output_tokens":1000}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: func(c *Config) { c.HoldBytes = 4096 }})
				defer w.close()
				for _, e := range []string{"a", "b", "c"} {
					w.serve(e+":80", storing(e))
					w.engine(e + ":80")
				}
				for range 4 { // round robin would go on to the next one each time
					code, _, answer := w.do("POST", "/v1/responses", c.body)
					id := answer[strings.Index(answer, "resp_"):]
					id = id[:strings.IndexByte(id, '"')]
					if code != 200 {
						t.Fatal(code, answer)
					}
					for _, next := range [][3]string{
						{"POST", "/v1/responses", `{"model":"m","input":"and?","previous_response_id":"` + id + `"}`},
						{"GET", storedPath + id, ""},
						{"POST", storedPath + id + "/cancel", ""},
					} {
						code, h, answer := w.do(next[0], next[1], next[2])
						if want := id[len("resp_"):][:1]; code != 200 || !strings.HasPrefix(h.Get("X-Kvasir-Replica"), want) {
							t.Errorf("%s %s went to %s: %d %s; want %s", next[0], next[1], h.Get("X-Kvasir-Replica"), code, answer, want)
						}
					}
				}
				w.idle()
			})
		})
	}
}

// What another router has passed on, or this one before it was restarted, is sought: the
// engines that don't have it say so at once, and nothing is held against them.
func TestStoredAnswersAreSought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		for _, e := range []string{"a", "b", "c", "d", "e"} { // more than there are attempts
			w.serve(e+":80", storing(e))
			w.engine(e + ":80")
		}
		for range 5 {
			w.do("POST", "/v1/responses", `{"model":"m","input":"hi"}`)
		}
		w.proxy.stored.by = nil // a new router
		if code, h, answer := w.do("POST", "/v1/responses", `{"model":"m","input":"and?","previous_response_id":"resp_d1"}`); code != 200 || !strings.HasPrefix(h.Get("X-Kvasir-Replica"), "d") {
			t.Errorf("%d %s from %s, want d's", code, answer, h.Get("X-Kvasir-Replica"))
		}
		if code, h, answer := w.do("GET", storedPath+"resp_c1", ""); code != 200 || !strings.HasPrefix(h.Get("X-Kvasir-Replica"), "c") {
			t.Errorf("%d %s from %s, want c's", code, answer, h.Get("X-Kvasir-Replica"))
		}
		for _, id := range []string{"resp_d1", "resp_c1", "resp_d2"} { // known by now, the last as d's answer
			if n, ok := w.proxy.stored.get(id); !ok || w.table.Snapshot().Replicas[n].Name[:1] != id[5:6] {
				t.Errorf("%s: replica %d, known: %v", id, n, ok)
			}
		}
		if code, _, answer := w.do("GET", storedPath+"resp_x", ""); code != 404 || !strings.Contains(answer, "resp_x") {
			t.Errorf("nobody has it: %d %s", code, answer)
		}
		if len(w.failed) != 0 || strings.Contains(w.outcomes(), "failed") {
			t.Errorf("failures are told: %v, %s", w.failed, w.outcomes())
		}
		if s := w.proxy.Stats(); s.Retries[Elsewhere] == 0 || len(s.Failures) != 0 {
			t.Errorf("retries %v, failures %v", s.Retries, s.Failures)
		}
		w.idle()
	})
}

// A request that builds on an answer that no engine here has, or whose engine is down,
// gets an engine's own words; one whose engine is up but
// fails it gets that failure, and not another engine's 404.
func TestStoredAnswersOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.serve("a:80", storing("a"))
		busy := false
		b := storing("b")
		w.serve("b:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if busy {
				answerJSON(503, `{"error":"busy"}`)(rw, r)
				return
			}
			b(rw, r)
		}))
		w.engine("a:80")
		rb := w.engine("b:80")
		on := func(id string) string {
			return `{"model":"m","input":"and?","previous_response_id":"` + id + `"}`
		}
		if code, _, answer := w.do("POST", "/v1/responses", on("resp_x")); code != 404 || !strings.Contains(answer, "resp_x") {
			t.Errorf("an unknown answer: %d %s", code, answer)
		}
		made := ""
		for range 2 {
			_, _, answer := w.do("POST", "/v1/responses", `{"model":"m","input":"hi"}`)
			made += answer
		}
		if !strings.Contains(made, "resp_b1") {
			t.Fatal(made)
		}
		busy = true
		if code, _, answer := w.do("POST", "/v1/responses", on("resp_b1")); code != 503 || !strings.Contains(answer, "busy") {
			t.Errorf("its engine is busy: %d %s; want the 503", code, answer)
		}
		if err := w.table.Update(rb.ID, func(r *fleet.Replica) { r.State = fleet.Down }); err != nil {
			t.Fatal(err)
		}
		if code, _, answer := w.do("POST", "/v1/responses", on("resp_b1")); code != 404 {
			t.Errorf("its engine is down: %d %s; want another one's 404", code, answer)
		}
		if r := w.lastReceipt(); r.Why == "" {
			t.Error("the receipt doesn't say why the prompt is unknown")
		}
	})
}

// An answer that the client asks not to store is not remembered.
func TestAnswersNotToBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.serve("a:80", storing("a"))
		w.engine("a:80")
		w.do("POST", "/v1/responses", `{"model":"m","input":"hi","store":false}`)
		w.do("POST", "/v1/responses", `{"model":"m","input":"hi","store":true}`)
		w.do("POST", "/v1/chat/completions", chatBody)
		_, first := w.proxy.stored.get("resp_a1")
		if _, second := w.proxy.stored.get("resp_a2"); first || !second || len(w.proxy.stored.by) != 1 {
			t.Errorf("remembered: %v", w.proxy.stored.by)
		}
	})
}

func TestStoredIsBounded(t *testing.T) {
	var s stored
	for i := range maxStored + 10 {
		s.put(fmt.Sprint(i), i)
		s.put(fmt.Sprint(i), i) // again: no second place
	}
	if len(s.by) != maxStored || len(s.ring) != maxStored {
		t.Errorf("%d answers, %d places; want %d", len(s.by), len(s.ring), maxStored)
	}
	if _, ok := s.get("9"); ok {
		t.Error("one of the oldest is still known")
	}
	for _, i := range []int{10, maxStored + 9} {
		if n, ok := s.get(fmt.Sprint(i)); !ok || n != i {
			t.Errorf("%d: %d, %v", i, n, ok)
		}
	}
}

func TestStoredID(t *testing.T) {
	for doc, want := range map[string]string{
		`{"id":"resp_1","object":"response"}`:                                "resp_1",
		`{"object":"response","id":"resp_1"`:                                 "resp_1",
		`{"type":"response.created","response":{"status":"x","id":"resp_1"}`: "resp_1",
		`{"item":{"id":"msg_1"},"item_id":"x"}`:                              "",
		`{"response":null,"id":7}`:                                           "",
		`{"id":"` + strings.Repeat("x", maxStoredID+1) + `"}`:                "",
		`{"id":"resp_1`: "",
		`[]`:            "",
		``:              "",
	} {
		if got := storedID([]byte(doc)); got != want {
			t.Errorf("%s: %q, want %q", doc, got, want)
		}
	}
}
