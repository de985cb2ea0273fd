package mockserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Handler returns the engine's HTTP API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	get := func(path string, h http.HandlerFunc) { mux.Handle(path, only(http.MethodGet, h)) }
	post := func(path string, h http.HandlerFunc) { mux.Handle(path, only(http.MethodPost, h)) }
	get("/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/ping", func(http.ResponseWriter, *http.Request) {})
	get("/version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, map[string]string{"version": s.cfg.Version})
	})
	get("/load", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, map[string]int64{"server_load": s.requests.Load()})
	})
	get("/metrics", s.metrics)
	get("/v1/models", s.models)
	get("/kv_event_sources", s.sources)
	post("/reset_prefix_cache", s.reset)
	post("/v1/chat/completions", s.generate(chat))
	post("/v1/completions", s.generate(completions))
	if !s.cfg.NoRender {
		post("/v1/chat/completions/render", s.render(chat))
		post("/v1/completions/render", s.render(completions))
	}
	post("/tokenize", s.tokenize)
	post("/detokenize", s.detokenize)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	return mux
}

func only(method string, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method {
			w.Header().Set("Allow", method)
			writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"detail": "Method Not Allowed"})
			return
		}
		h(w, r)
	})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprint(w, strings.TrimSuffix(b.String(), "\n"))
}

// An apiError is vLLM's error body.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

func (e *apiError) write(w http.ResponseWriter) {
	writeJSON(w, e.Code, map[string]*apiError{"error": e})
}

func badRequest(param, format string, args ...any) *apiError {
	e := &apiError{Message: fmt.Sprintf(format, args...), Type: "BadRequestError", Code: http.StatusBadRequest}
	if param != "" {
		e.Param = &param
	}
	return e
}

func (s *Server) unknownModel(name string) *apiError {
	p := "model"
	return &apiError{
		Message: fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", name, s.cfg.Model),
		Type:    "NotFoundError", Param: &p, Code: http.StatusNotFound,
	}
}

type modelCard struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Created     int64   `json:"created"`
	OwnedBy     string  `json:"owned_by"`
	Root        string  `json:"root"`
	Parent      *string `json:"parent"`
	MaxModelLen int     `json:"max_model_len"`
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, 200, struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{"list", []modelCard{{
		ID: s.cfg.Model, Object: "model", Created: s.started.Unix(), OwnedBy: "vllm", Root: s.cfg.Model, MaxModelLen: s.cfg.MaxLen,
	}}})
}

type eventSource struct {
	Enable   bool    `json:"enable_kv_cache_events"`
	Publish  string  `json:"publisher"`
	Endpoint string  `json:"endpoint"`
	Replay   *string `json:"replay_endpoint"`
	Buffer   int     `json:"buffer_steps"`
	HWM      int     `json:"hwm"`
	MaxQueue int     `json:"max_queue_size"`
	Topic    string  `json:"topic"`
}

func (s *Server) sources(w http.ResponseWriter, _ *http.Request) {
	out := map[string]eventSource{}
	if s.pub != nil {
		e := eventSource{Enable: true, Publish: "zmq", Endpoint: s.events, Buffer: s.cfg.Buffer, HWM: 100_000, MaxQueue: 100_000, Topic: s.cfg.Topic}
		if s.replay != "" {
			e.Replay = &s.replay
		}
		out["0"] = e
	}
	writeJSON(w, 200, out)
}

func (s *Server) reset(w http.ResponseWriter, _ *http.Request) {
	ok := false
	s.loop.call(func() { ok = s.loop.engine.Reset() })
	writeJSON(w, 200, map[string]bool{"success": ok})
}
