package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"kvasir/engine/seq"
	"kvasir/kv"
)

// A StreamMark says where one stream stands, for a warm restart: with an index
// that was written at that moment, a later Replica goes on from there.
type StreamMark struct {
	Source Source   `json:"source"`
	Ranks  []int    `json:"ranks"`        // of the replica, that its publisher speaks for
	Spoken []int    `json:"engine_ranks"` // what the engine calls them
	Lower  bool     `json:"lower_tiers"`  // blocks outside of the GPU are known
	Seq    seq.Mark `json:"at"`
}

// Hold stops the streams, each between two batches, and returns where they stand,
// until release is called. Streams without a mark are those of which nothing can
// be gone on with: what is known of their ranks must not be kept. After Run has
// ended it returns where they ended.
func (r *Replica) Hold() (marks []StreamMark, release func()) {
	r.claims.Lock() // no stream may begin meanwhile with a mark that we hand out
	r.mu.Lock()
	var held []*following
	for _, f := range r.streams {
		held = append(held, f)
	}
	marks = slices.Clone(r.ended)
	for _, k := range r.marks {
		marks = append(marks, k)
	}
	r.mu.Unlock()
	for _, f := range held {
		f.gate.Lock()
		if k, ok := f.mark(); ok {
			marks = append(marks, k)
		}
	}
	return marks, sync.OnceFunc(func() {
		for _, f := range held {
			f.gate.Unlock()
		}
		r.claims.Unlock()
	})
}

// Resume has the streams go on from marks, whose blocks the hooks' index has. What
// turns out to be of no use is forgotten through Hooks.Apply. models are those that
// the engine had; of an adapter that it has no more nothing is believed. Call it
// before Run.
func (r *Replica) Resume(marks []StreamMark, models []kv.Model) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.Models = models
	for _, k := range marks {
		r.marks[k.Source.Rank] = k
	}
}

// mark returns where f stands; false: there is nothing to go on with.
func (f *following) mark() (StreamMark, bool) {
	at, ok := f.machine.Mark()
	k := StreamMark{Source: f.source, Lower: f.lower, Seq: at}
	for rank := range f.targets {
		n := f.ranks.index(rank)
		ok = ok && n >= 0
		k.Spoken, k.Ranks = append(k.Spoken, rank), append(k.Ranks, n)
	}
	slices.Sort(k.Spoken)
	slices.Sort(k.Ranks)
	return k, ok && len(k.Ranks) > 0
}

// hand has a new stream go on from k.
func (r *Replica) hand(k StreamMark, f *following) {
	if k.Source != f.source {
		r.disown(k, "the engine publishes its events elsewhere than before")
		return
	}
	for _, rank := range k.Spoken {
		t := f.lookUp(rank)
		if t == kv.NoTarget {
			clear(f.targets)
			r.disown(k, fmt.Sprintf("the engine has no rank %d any more", rank))
			return
		}
		f.targets[rank] = t
	}
	f.spoken, f.lower = true, k.Lower
	f.machine.Resume(k.Seq)
}

// disown forgets what was loaded for a mark that no stream goes on from.
func (r *Replica) disown(k StreamMark, why string) {
	r.cfg.Log.Info("forgetting what the engine held", "rank", k.Source.Rank, "reason", "the snapshot is of no use: "+why)
	for _, rank := range k.Ranks {
		if t := r.hooks.Target(rank); t != kv.NoTarget {
			r.hooks.Apply(&kv.Event{Kind: kv.Cleared, AllTiers: true, Target: t})
			if r.hooks.Trust != nil {
				r.hooks.Trust(t, kv.Unknown, why)
			}
		}
	}
}

// disownRest does so for all marks whose streams don't come: the engine has told
// where its events are and it isn't there, or it hasn't for too long.
func (r *Replica) disownRest(now time.Time, told bool) {
	r.mu.Lock()
	if len(r.marks) == 0 {
		r.mu.Unlock()
		return
	}
	if r.waiting.IsZero() {
		r.waiting = now
	}
	if !told && now.Sub(r.waiting) < r.cfg.BlindAfter {
		r.mu.Unlock()
		return
	}
	rest := r.marks
	r.marks = map[int]StreamMark{}
	r.mu.Unlock()
	for _, k := range rest {
		r.disown(k, "the engine has not shown where it publishes the events of this rank, or doesn't any more")
	}
}

// forget drops what f's targets hold, from outside of its goroutine, which has ended.
func (f *following) forget(why string) {
	f.gate.Lock()
	defer f.gate.Unlock()
	f.Forget(why)
}
