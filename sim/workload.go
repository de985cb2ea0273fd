package sim

import (
	"fmt"
	"io"
	"sort"
	"strconv"

	"kvasir/kv"
	"kvasir/model"
	"kvasir/trace"
)

// A Workload makes the requests of any number of runs. It is read-only once it
// is made, so runs may share it.
type Workload struct {
	name   string
	open   []openArrival
	speed  float64 // factor on the rate of open arrivals
	closed func() source
	size   int // tokens per block
}

// An openArrival is a request with a fixed arrival time.
type openArrival struct {
	at          float64
	prompt, out int
	session     uint64
	conv        int32
	blocks      []kv.Hash
}

// start returns the source of one run.
func (w *Workload) start() source {
	if w.closed != nil {
		return w.closed()
	}
	return &openSource{w: w}
}

type openSource struct {
	w *Workload
	n int
}

func (s *openSource) next() (*request, bool) {
	if s.n >= len(s.w.open) {
		return nil, false
	}
	a := &s.w.open[s.n]
	q := &request{Request: model.Request{ID: uint64(s.n), Prompt: a.prompt, Output: a.out, Blocks: a.blocks},
		arrival: a.at / s.w.speed, session: a.session, conv: a.conv}
	s.n++
	return q, true
}

func (s *openSource) begin(func(*request)) {}

func (s *openSource) ended(*request, float64, func(*request)) {}

// sessionKey is the number that a session's name hashes to: FNV-1a with the
// offset of experiments.md (section 4.2) over the name in single quotes, which is
// how the reference simulator came by its keys from the cell files.
func sessionKey(name string) uint64 {
	h := uint64(1469598103934665603)
	mix := func(b byte) { h = (h ^ uint64(b)) * 1099511628211 }
	mix('\'')
	for i := range len(name) {
		mix(name[i])
	}
	mix('\'')
	return h
}

// readOpen reads an open-loop trace, at most limit requests (0: all).
func readOpen(r *trace.Reader, limit int) ([]openArrival, error) {
	var list []openArrival
	convs := map[string]int32{}
	for limit == 0 || len(list) < limit {
		q, err := r.NextRequest()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		a := openArrival{at: q.At, prompt: q.Input, out: q.Output, blocks: hashes(q.Blocks)}
		if q.Session == "" {
			a.conv = int32(len(convs))
			convs["\x00"+strconv.Itoa(len(list))] = a.conv
			a.session = h64(uint64(len(list)))
		} else {
			id, ok := convs[q.Session]
			if !ok {
				id = int32(len(convs))
				convs[q.Session] = id
			}
			a.conv, a.session = id, sessionKey(q.Session)
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the trace has no usable request")
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].at < list[j].at })
	return list, nil
}

func hashes(ids []uint64) []kv.Hash {
	out := make([]kv.Hash, len(ids))
	for i, id := range ids {
		out[i] = kv.Hash(id)
	}
	return out
}
