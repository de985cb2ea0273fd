package proxy

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"kvasir/sched"
)

// A dialect is how an endpoint talks of errors.
type dialect uint8

const (
	openAI dialect = iota
	anthropic
	responses
)

func dialectOf(e Endpoint) dialect {
	switch e {
	case Messages:
		return anthropic
	case Responses:
		return responses
	}
	return openAI
}

// A problem is an error as a client is told it.
type problem struct {
	status  int
	typ     string // OpenAI's type
	code    string // OpenAI's code
	param   string
	message string
	after   time.Duration // when to try again, if not as configured
}

// errBusy is a problem that another try, in a while, may not have.
var errBusy = problem{status: http.StatusServiceUnavailable, typ: "server_error", code: "no_engine_available"}

// typ of Anthropic for a status.
func anthropicType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "invalid_request_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// document returns the problem as the JSON body of an answer.
func (e *problem) document(d dialect) []byte {
	var v any
	if d == anthropic {
		type inner struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		}
		v = struct {
			Type  string `json:"type"`
			Error inner  `json:"error"`
		}{"error", inner{anthropicType(e.status), e.message}}
	} else {
		v = struct {
			Error openAIError `json:"error"`
		}{openAIError{e.message, e.typ, optional(e.param), optional(e.code)}}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings only
	}
	return b
}

// event returns the problem as the last event of a stream. seq is the number of
// events before it.
func (e *problem) event(d dialect, seq int) []byte {
	switch d {
	case anthropic:
		return append(append([]byte("event: error\ndata: "), e.document(d)...), "\n\n"...)
	case responses:
		b, err := json.Marshal(struct {
			Type     string  `json:"type"`
			Code     *string `json:"code"`
			Message  string  `json:"message"`
			Param    *string `json:"param"`
			Sequence int     `json:"sequence_number"`
		}{"error", optional(e.code), e.message, optional(e.param), seq})
		if err != nil {
			panic(err) // strings and a number only
		}
		return append(append([]byte("event: error\ndata: "), b...), "\n\n"...)
	}
	return append(append([]byte("data: "), e.document(d)...), "\n\ndata: [DONE]\n\n"...)
}

// refuse answers a request with a problem.
func (p *Proxy) refuse(w http.ResponseWriter, d dialect, e problem) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if e.status == http.StatusServiceUnavailable || e.status == http.StatusTooManyRequests {
		if e.after <= 0 {
			e.after = p.cfg.RetryAfter
		}
		h.Set("Retry-After", strconv.Itoa(wholeSeconds(e.after)))
	}
	doc := e.document(d)
	h.Set("Content-Length", strconv.Itoa(len(doc)))
	w.WriteHeader(e.status)
	w.Write(doc) // an error here means that the client has gone
}

// wholeSeconds is what Retry-After can say of d.
func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// routeProblem says why no target was found.
func routeProblem(err error) problem {
	var unknown *sched.UnknownModelError
	if errors.As(err, &unknown) && len(unknown.Known) > 0 {
		return problem{status: http.StatusNotFound, typ: "invalid_request_error", code: "model_not_found", param: "model", message: err.Error()}
	}
	e := errBusy
	e.message = err.Error()
	var shed *sched.ShedError
	if errors.As(err, &shed) {
		e.status, e.typ, e.code, e.after = http.StatusTooManyRequests, "rate_limit_error", "overloaded", shed.Retry
	}
	return e
}

// engineProblem says what became of a request that no engine served.
func engineProblem(why Reason) problem {
	e := errBusy
	switch why {
	case Silent, Stalled:
		e.status, e.code = http.StatusGatewayTimeout, "engine_timeout"
		e.message = "the engine that has this request did not answer in time (" + why.String() + ")"
	case Leaving:
		e.code, e.message = "draining", "this router is shutting down, and the time for open requests is over: try again, on another connection"
	case Local:
		e.message = "this router has no file or port left for a connection to an engine: try again"
	case Unreachable:
		e.message = "no engine that serves this model can be reached"
	default:
		e.status, e.code = http.StatusBadGateway, "engine_failed"
		e.message = "the engine that had this request failed before its answer was complete (" + why.String() + ")"
	}
	return e
}
