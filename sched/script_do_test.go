package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/sched"
)

var commands = map[string]func(*script){
	"replica": func(s *script) {
		r, err := s.fleet.Add("http://"+s.word(0)+":80", s.now)
		if err != nil {
			s.fail("%v", err)
		}
		targets, _, err := s.fleet.SetRanks(r.ID, s.num("ranks", 1))
		if err != nil {
			s.fail("%v", err)
		}
		for i, t := range targets {
			if s.names[t] = s.word(0); i > 0 {
				s.names[t] = fmt.Sprintf("%s/%d", s.word(0), i)
			}
		}
		if !s.has("block") {
			s.args["block"] = []string{"16"}
		}
		if !s.has("models") {
			s.args["models"] = []string{"m"}
		}
		if !s.has("state") {
			s.args["state"] = []string{"up"}
		}
		s.change()
	},
	"change": (*script).change,
	"remove": func(s *script) {
		if _, err := s.fleet.Remove(s.fleet.Snapshot().Replica(s.target(0)).ID); err != nil {
			s.fail("%v", err)
		}
	},
	"release": func(s *script) {
		t := s.target(0)
		delete(s.names, t)
		s.fleet.Release(t)
	},
	"store": func(s *script) { s.announce(kv.Stored) },
	"evict": func(s *script) { s.announce(kv.Removed) },
	"trust": func(s *script) {
		for l := kv.Unknown; l <= kv.Blind; l++ {
			if l.String() == s.word(1) {
				s.SetTrust(s.target(0), l, s.str("why", ""), s.now)
				return
			}
		}
		s.fail("trust %q", s.word(1))
	},
	"gauge": func(s *script) {
		s.SetGauge(s.target(0), kv.Gauge{Running: s.num("running", 0), Waiting: s.num("waiting", 0), KVUsage: s.float("kv"), At: s.now})
	},
	"route": func(s *script) { s.route(s.request()) },
	"peer": func(s *script) {
		r, t := s.request(), s.target(0)
		r.Only = &t
		s.route(r)
	},
	"first":    func(s *script) { s.decision().FirstToken(s.now) },
	"progress": func(s *script) { s.decision().Progress(s.atoi(s.word(1)), s.now) },
	"served":   func(s *script) { s.decision().Served(s.atoi(s.word(1)), s.atoi(s.word(2))) },
	"done": func(s *script) {
		outcome := sched.Completed
		for o := sched.Cancelled; len(s.arg) > 1 && o <= sched.Failed; o++ {
			if o.String() == s.word(1) {
				outcome = o
			}
		}
		s.decision().Done(s.now, outcome)
	},
	"serve": func(s *script) {
		s.quiet = true
		for range s.atoi(s.word(0)) {
			r := s.request()
			d, err := s.Route(r, s.now)
			if err != nil {
				s.fail("%v", err)
			}
			d.Served(r.Prompt.Tokens, s.atoi(s.word(1)))
			if s.has("took") {
				s.now = s.now.Add(s.duration("took", 0))
				d.FirstToken(s.now)
				d.Progress(s.num("answer", 0), s.now)
			}
			d.Done(s.now, sched.Completed)
		}
		s.quiet = false
	},
	"wait": func(s *script) {
		d, err := time.ParseDuration(s.word(0))
		if err != nil {
			s.fail("%v", err)
		}
		s.now = s.now.Add(d)
	},
	"tick": func(s *script) {
		if n := s.Tick(s.now); n > 0 {
			s.say("%d bookings given up", n)
		}
	},
	"load":  func(s *script) { s.say("owes %s", s.show(s.Load(s.target(0), s.now))) },
	"state": func(s *script) { s.say("%s", s.show(s.State(s.target(0)))) },
	"learned": func(s *script) {
		if l, ok := s.Learned(s.target(0)); ok {
			s.say("%s", s.show(l))
		} else {
			s.say("nothing is learned")
		}
	},
	"match": func(s *script) {
		r := s.request()
		over := make([]kv.Overlap, s.fleet.Snapshot().NumTargets())
		s.index.Match(&r.Prompt, over)
		for t, o := range over {
			s.say("%s: %s", s.names[kv.Target(t)], s.show(o))
		}
	},
	"costs": func(s *script) {
		if terms, unit := s.Costs(); terms != nil {
			s.say("%s, in %s", strings.Join(terms, " + "), unit)
		} else {
			s.say("none")
		}
	},
	"receipts": func(s *script) {
		for _, r := range s.Receipts(nil, s.num("limit", 0)) {
			s.say("%s", s.whole(&r))
		}
		if n := s.ReceiptsOverwritten(); n > 0 {
			s.say("%d were overwritten before their requests had ended", n)
		}
	},
	"forget": func(s *script) { s.Forget(s.target(0), s.now) },
	"keep": func(s *script) {
		if s.kept = s.PolicyState(); s.kept == nil {
			s.say("nothing to keep")
		} else {
			s.say("%s", s.kept)
		}
	},
	"restore": func(s *script) {
		if len(s.arg) > 0 {
			s.kept = []byte(strings.Join(s.arg, " "))
		}
		if err := s.RestorePolicy(s.kept); err != nil {
			s.say("%v", err)
		}
	},
	"spy": func(s *script) {
		*s.spy = spy{
			script: s, quiet: s.has("quiet"), pick: s.str("pick", ""), outside: s.str("outside", ""), branch: s.str("branch", ""),
			uncached: s.num("uncached", 0), prefill: s.duration("prefill", 0), shed: s.duration("shed", 0), tag: uint64(s.num("tag", 0)),
			cost: map[string]float64{},
		}
		for _, c := range s.args["costs"] {
			name, v, _ := strings.Cut(c, ":")
			s.spy.cost[strings.TrimSpace(name)] = float64(s.atoi(v))
		}
	},
}

func (s *script) change() {
	err := s.fleet.Update(s.fleet.Snapshot().Replica(s.target(0)).ID, func(r *fleet.Replica) {
		r.BlockSize, r.Blocks, r.MaxBatch = s.num("block", r.BlockSize), s.num("blocks", r.Blocks), s.num("max-batch", r.MaxBatch)
		if s.has("models") {
			r.Models = nil
			for _, m := range s.args["models"] {
				id, parent, _ := strings.Cut(strings.TrimSpace(m), "<")
				r.Models = append(r.Models, kv.Model{ID: id, Parent: parent})
			}
		}
		for i := range r.Models {
			if r.Models[i].Parent == "" {
				r.Models[i].MaxLen = s.num("max-len", r.Models[i].MaxLen)
			}
		}
		for st := fleet.Starting; st <= fleet.Down; st++ {
			if st.String() == s.str("state", r.State.String()) {
				r.State = st
				return
			}
		}
		s.fail("state %q", s.str("state", ""))
	})
	if err != nil {
		s.fail("%v", err)
	}
}

// announce is an event of an engine: it has stored the full blocks of the tokens, or
// has evicted the last one of them. A block's handle is the hash of what it ends.
func (s *script) announce(kind kv.Kind) {
	t, tokens := s.target(0), s.tokens()
	size := s.fleet.Snapshot().Replica(t).BlockSize
	var handles []kv.Handle
	root := kv.Seed(5).Root(kv.Key{}, size)
	for _, h := range kv.Seed(5).Extend(nil, root, tokens, size, nil) {
		handles = append(handles, kv.Handle(h))
	}
	ev := kv.Event{Kind: kind, Target: t, BlockSize: int32(size), Handles: handles}
	if s.str("tier", "gpu") == "host" {
		ev.Tier = kv.Host
	}
	if kind == kv.Removed {
		ev.Handles = handles[len(handles)-1:]
	} else {
		ev.Root, ev.Tokens = true, tokens[:len(handles)*size]
	}
	s.Apply(&ev)
}

// request reads the fields of a request: model=m id=.. tokens=(x:160) why=.. source=..
// unread odd answer=N (tokens, at least) bytes=N output=N max-output=N session=.. tenant=.. text=.. silent next-turn=D
// priority=N deadline=D exclude=(a,b).
func (s *script) request() *sched.Request {
	r := &sched.Request{
		Model: s.str("model", "m"), ID: s.str("id", ""), Why: s.str("why", ""), Source: s.str("source", ""), Bytes: s.num("bytes", 0),
		Output: s.num("output", 0), MaxOutput: s.num("max-output", 0), Session: s.str("session", ""), Tenant: s.str("tenant", ""),
		Silent: s.has("silent"), Unread: s.has("unread"), Odd: s.has("odd"), NextTurn: s.duration("next-turn", 0), Priority: s.num("priority", 0), Deadline: s.duration("deadline", 0),
	}
	if s.has("text") {
		r.Text = []byte(s.str("text", ""))
	}
	for _, name := range s.args["exclude"] {
		r.Exclude = append(r.Exclude, s.named(strings.TrimSpace(name)))
	}
	if s.has("tokens") {
		s.Chains(&r.Prompt, r.Model, s.tokens(), kv.Key{}, nil)
		r.Room = r.Prompt.Tokens + s.num("answer", 1)
	}
	return r
}

func (s *script) route(r *sched.Request) {
	defer func() {
		if p := recover(); p != nil {
			s.say("panic: %v", p)
		}
	}()
	d, err := s.Route(r, s.now)
	if err != nil {
		s.say("%v", err)
		return
	}
	s.open[d.ID()] = d
	all := s.Receipts(nil, 0)
	i := slices.IndexFunc(all, func(r sched.Receipt) bool { return r.ID == d.ID() })
	if i < 0 {
		s.say("#%d: to %s", d.ID(), s.names[d.Target])
		return
	}
	s.receipt(&all[i])
}

func (s *script) decision() *sched.Decision {
	d := s.open[uint64(s.atoi(s.word(0)))]
	if d == nil {
		s.fail("no decision %s", s.word(0))
	}
	return d
}
