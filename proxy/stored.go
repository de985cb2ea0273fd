package proxy

import (
	"net/http"
	"strings"
	"sync"

	"kvasir/fleet"
)

// storedPath is what is followed by the id of a stored answer: to read it, or to
// cancel it.
const storedPath = "/v1/responses/"

// maxStored bounds how many answers are remembered, maxStoredID the length of an id
// in bytes: vLLM's have 21.
const maxStored, maxStoredID = 1 << 16, 128

// A stored map knows which replica keeps which answer of the Responses API. vLLM
// stores them in the memory of one API server (VLLM_ENABLE_RESPONSES_API_STORE=1,
// vllm-project/vllm#22137), and to a request that builds on one (previous_response_id),
// reads it or cancels it, any other replica says 404. The oldest are forgotten first.
type stored struct {
	mu   sync.Mutex
	by   map[string]int // replica by id; guarded by mu
	ring []string       // ids, the oldest at next once it is full; guarded by mu
	next int            // guarded by mu
}

// put remembers that the replica has the answer called id.
func (s *stored) put(id string, replica int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]int{}
	}
	if _, again := s.by[id]; !again {
		if len(s.ring) < maxStored {
			s.ring = append(s.ring, id)
		} else {
			delete(s.by, s.ring[s.next])
			s.ring[s.next] = id
			s.next = (s.next + 1) % maxStored
		}
	}
	s.by[id] = replica
}

// get returns the replica that has the answer called id.
func (s *stored) get(id string) (replica int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	replica, ok = s.by[id]
	return replica, ok
}

// builtOn returns the id of the stored answer that the request is about, "" if it
// is about none.
func (c *call) builtOn() string {
	if c.rt.endpoint == Responses {
		return c.f.previous
	}
	if id, ok := strings.CutPrefix(c.r.URL.Path, storedPath); ok {
		id, _, _ = strings.Cut(id, "/")
		return id
	}
	return ""
}

// stick keeps to the replica that has the stored answer which the request is about.
// If that replica fails it no other one is tried: all others would say that there is
// no such answer. If nobody here knows who has it (another router has passed it on,
// or this one before it was restarted), or that one is not up, it is sought.
func (c *call) stick() {
	id := c.builtOn()
	if id == "" {
		return
	}
	snap := c.p.fleet.Snapshot()
	if r := c.p.holder(snap, id); r != nil {
		model := c.f.model
		if c.rt.endpoint != Responses { // the request names none
			model = r.Models[0].ID
		}
		g := snap.Group(model)
		if _, serves := r.Serves(model); serves && g != nil {
			c.route.Model = model
			for _, t := range g.Targets {
				if r.Rank(t) < 0 {
					c.route.Exclude = append(c.route.Exclude, t)
				}
			}
			return
		}
	}
	if len(id) <= maxStoredID {
		c.seeking = id
	}
}

// holder returns the replica that has the answer called id, if that is known and the
// replica up.
func (p *Proxy) holder(snap *fleet.Snapshot, id string) *fleet.Replica {
	n, ok := p.stored.get(id)
	if !ok {
		return nil
	}
	for _, r := range snap.Replicas {
		if r.ID == n && r.State == fleet.Up && len(r.Models) > 0 {
			return r
		}
	}
	return nil
}

// maxSeek bounds how many engines are asked for a stored answer. Each says at once
// that it doesn't have it.
const maxSeek = 16

// sought says what an engine's status means for the answer that is sought.
func (a *attempt) sought(why Reason) Reason {
	switch a.resp.StatusCode {
	case http.StatusNotFound:
		return Elsewhere
	case http.StatusOK:
		a.c.p.stored.put(a.c.seeking, a.d.Replica.ID)
	}
	return why
}

// keeps notes that the engine has the answer called id, if it may. Call it before
// the client can know the id.
func (a *attempt) keeps(id string) {
	if id != "" && a.c.stores() {
		a.c.p.stored.put(id, a.d.Replica.ID)
	}
}

// stores reports whether the engine may keep the answer.
func (c *call) stores() bool {
	return c.rt.endpoint == Responses && c.r.Method == http.MethodPost && !c.f.unstored
}

// storedID returns the id that an answer, or an event of a stream, gives the response:
// its "id", or that of its "response". The document may be cut.
func storedID(doc []byte) string {
	c := cursor{b: doc}
	if !c.open('{') {
		return ""
	}
	for n := 0; c.more('}', &n); {
		switch string(c.key()) {
		case "id":
			return storedName(c.text())
		case "response":
			if !c.open('{') {
				c.skip()
				continue
			}
			for k := 0; c.more('}', &k); {
				if string(c.key()) == "id" {
					return storedName(c.text())
				}
				c.skip()
			}
		default:
			c.skip()
		}
	}
	return ""
}

// storedName returns the id between the quotes, "" if it is too long to be one.
func storedName(raw []byte) string {
	if len(raw) > maxStoredID {
		return ""
	}
	return unescape(raw)
}
