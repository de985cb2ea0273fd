package sched

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/ledger"
	"kvasir/policy"
)

var t0 = time.Unix(1_700_000_000, 0)

// A house is a scheduler over n replicas of model "m" with blocks of 16 tokens.
type house struct {
	*Scheduler
	table   *fleet.Table
	handles kv.Handle
}

func newHouse(tb testing.TB, n int, policyName string) *house {
	tb.Helper()
	h := &house{table: new(fleet.Table)}
	for i := range n {
		r, err := h.table.Add(fmt.Sprintf("http://10.0.%d.%d:8000", i/250, i%250+1), t0)
		if err != nil {
			tb.Fatal(err)
		}
		h.up(tb, r.ID)
	}
	cfg := policy.Defaults()
	cfg.Name = policyName
	p, err := policy.New(cfg, rand.New(rand.NewPCG(1, 2)).IntN)
	if err != nil {
		tb.Fatal(err)
	}
	h.Scheduler = New(Config{}, Parts{
		Fleet: h.table, Index: index.New(index.Config{Seed: 5}), Seed: 5,
		Ledger: ledger.New(ledger.Config{}), Policy: p, Name: policyName,
	})
	return h
}

func (h *house) up(tb testing.TB, id int) {
	tb.Helper()
	err := h.table.Update(id, func(r *fleet.Replica) {
		r.State, r.BlockSize, r.Blocks = fleet.Up, 16, 4096
		r.Models = []kv.Model{{ID: "m", MaxLen: 131072}}
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func ids(n, salt int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i*7 + salt*1_000_003)
	}
	return out
}

func (h *house) request(tokens []uint32) *Request {
	r := &Request{Model: "m"}
	h.Chains(&r.Prompt, "m", tokens, kv.Key{}, nil)
	return r
}

// store makes target t announce all full blocks of tokens.
func (h *house) store(t kv.Target, tokens []uint32) {
	n := len(tokens) / 16
	ev := kv.Event{Kind: kv.Stored, Target: t, BlockSize: 16, Root: true, Tokens: tokens[:n*16]}
	for range n {
		h.handles++
		ev.Handles = append(ev.Handles, h.handles)
	}
	h.Apply(&ev)
}

func (h *house) route(tb testing.TB, r *Request, now time.Time) *Decision {
	tb.Helper()
	d, err := h.Route(r, now)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestRouteGoesWhereThePrefixIs(t *testing.T) {
	h := newHouse(t, 4, "dynamo")
	prompt := ids(160, 1)
	h.store(2, prompt)
	d := h.route(t, h.request(prompt), t0)
	if d.Target != 2 || d.Cached() != 144 || d.Tokens != 160 {
		t.Errorf("target %d, %d of %d cached; want target 2, 144 of 160: an engine computes its last block again", d.Target, d.Cached(), d.Tokens)
	}
	d.Done(t0, Completed)
}

// A burst of equal requests spreads: each pick sees the bookings before it.
func TestBurstDoesNotHerd(t *testing.T) {
	h := newHouse(t, 4, "least_load")
	r := h.request(ids(1600, 1))
	count := map[kv.Target]int{}
	for range 40 {
		count[h.route(t, r, t0).Target]++
	}
	for tg, n := range count {
		if n != 10 {
			t.Errorf("target %d got %d of 40, want 10 each: %v", tg, n, count)
		}
	}
}

// The ledger is empty after every request has ended, in whatever order its life's
// calls come, and more than once.
func TestLedgerDrains(t *testing.T) {
	h := newHouse(t, 3, "dynamo")
	rnd := rand.New(rand.NewPCG(3, 4))
	var open []*Decision
	now := t0
	for i := range 2000 {
		now = now.Add(time.Millisecond)
		open = append(open, h.route(t, h.request(ids(16+rnd.IntN(400), rnd.IntN(20))), now))
		for len(open) > 0 && rnd.IntN(3) > 0 {
			j := rnd.IntN(len(open))
			d := open[j]
			switch rnd.IntN(5) {
			case 0:
				d.FirstToken(now)
			case 1:
				d.Progress(1+rnd.IntN(30), now)
			case 2:
				d.Served(d.Tokens, 0)
			default:
				d.Done(now, Outcome(1+i%3))
				d.Done(now, Failed)
				d.FirstToken(now)
				d.Progress(5, now)
				open = append(open[:j], open[j+1:]...)
			}
		}
	}
	for _, d := range open {
		d.Done(now, Completed)
	}
	for tg := range kv.Target(3) {
		if l := h.Load(tg, now); l != (kv.Load{}) {
			t.Errorf("target %d owes %+v after the drain", tg, l)
		}
	}
	h.Tick(now.Add(time.Hour))
	if n := len(h.predicted.q) - h.predicted.head; n != 0 {
		t.Errorf("%d predictions are left an hour later", n)
	}
}

// What was dispatched is credited as predicted until it is a fact or too old.
func TestPredictions(t *testing.T) {
	h := newHouse(t, 1, "dynamo")
	prompt := ids(160, 1)
	d := h.route(t, h.request(prompt), t0)
	over := make([]kv.Overlap, 1)
	match := func() kv.Overlap {
		r := h.request(prompt)
		h.index.Match(&r.Prompt, over)
		return over[0]
	}
	if o := match(); o.GPU != 0 || o.Predicted != 144 {
		t.Errorf("while it runs: %+v, want 144 predicted", o)
	}
	d.Done(t0, Completed)
	h.Tick(t0.Add(2 * time.Second))
	if o := match(); o.Predicted != 144 {
		t.Errorf("2 s after its end: %+v, want 144 predicted", o)
	}
	h.Tick(t0.Add(4 * time.Second))
	if o := match(); o != (kv.Overlap{}) {
		t.Errorf("4 s after its end: %+v, want nothing", o)
	}
	failed := h.route(t, h.request(prompt), t0)
	failed.Done(t0, Failed)
	if o := match(); o != (kv.Overlap{}) {
		t.Errorf("after a failure: %+v, want nothing at once", o)
	}
}

func TestErrorsSayWhy(t *testing.T) {
	h := newHouse(t, 3, "dynamo")
	_, err := h.Route(&Request{Model: "nope"}, t0)
	var unknown *UnknownModelError
	if !errors.As(err, &unknown) || err.Error() != `model "nope" is not served here; served: m` {
		t.Errorf("%v", err)
	}
	snap := h.table.Snapshot()
	h.table.Update(snap.Replicas[0].ID, func(r *fleet.Replica) { r.State = fleet.Down })
	h.table.Update(snap.Replicas[1].ID, func(r *fleet.Replica) { r.State = fleet.Draining })
	_, err = h.Route(&Request{Model: "m", Exclude: []kv.Target{2}}, t0)
	var none *UnavailableError
	if !errors.As(err, &none) || *none != (UnavailableError{Model: "m", Total: 3, Down: 1, Draining: 1, Excluded: 1}) {
		t.Errorf("%v, want 1 down, 1 draining, 1 tried", err)
	}
	if d := h.route(t, &Request{Model: "m", Bytes: 400, Why: "off"}, t0); d.Target != 2 || d.Tokens != 0 {
		t.Errorf("without tokens: target %d, %d tokens, want 2 and 0", d.Target, d.Tokens)
	}
}

func TestReceipts(t *testing.T) {
	h := newHouse(t, 12, "dynamo")
	prompt := ids(320, 1)
	h.store(7, prompt)
	d := h.route(t, h.request(prompt), t0)
	d.FirstToken(t0.Add(20 * time.Millisecond))
	d.Progress(3, t0.Add(30*time.Millisecond))
	d.Served(320, 288)
	d.Done(t0.Add(40*time.Millisecond), Completed)
	h.route(t, h.request(ids(320, 2)), t0)
	rs := h.Receipts(nil, 0)
	if len(rs) != 2 || rs[0].ID != 2 || rs[1].ID != 1 {
		t.Fatalf("%d receipts, want 2, the newest first", len(rs))
	}
	r := rs[1]
	if r.Replica != "10.0.0.8:8000" || r.NumAll != 12 || r.NumKept != ReceiptCandidates || r.Candidates[0].Target != 7 {
		t.Errorf("%+v", r)
	}
	for i := 2; i < r.NumKept; i++ {
		if r.Candidates[i].Cost < r.Candidates[i-1].Cost {
			t.Errorf("candidates not by cost: %+v", r.Candidates)
		}
	}
	if r.FirstToken != 20*time.Millisecond || r.Took != 40*time.Millisecond || r.Output != 3 || !r.Served || r.ServedCached != 288 || r.Outcome != Completed {
		t.Errorf("%+v", r)
	}
	if st := h.State(7); st.Compared != 1 || st.Predicted != 304 || st.Cached != 288 || st.Over != 16 || st.Phantoms != 1 {
		t.Errorf("%+v, want 304 predicted, 288 served", st)
	}
}

// Predictions are made and taken back outside of the lock, in the order that matters:
// each decision's own. They are there when Route returns, and none is left when all
// have ended, failed ones at once.
func TestPredictionsOfMany(t *testing.T) {
	h := newHouse(t, 2, "dynamo")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 3))
			r := &Request{Model: "m"}
			over := make([]kv.Overlap, 2)
			for range 200 {
				n := 1 + rnd.IntN(100)
				h.Chains(&r.Prompt, "m", ids(16*n+1, rnd.IntN(3)), kv.Key{}, nil)
				d, err := h.Route(r, t0)
				if err != nil {
					t.Error(err)
					return
				}
				h.index.Match(&r.Prompt, over)
				if got := over[d.Target].Predicted; int(got) != 16*n {
					t.Errorf("%d tokens are predicted where a prompt of %d went", got, 16*n)
				}
				d.Done(t0, []Outcome{Completed, Failed, Cancelled}[rnd.IntN(3)])
			}
		})
	}
	wg.Wait()
	left := 0
	for tg := range kv.Target(2) {
		left += int(h.index.TargetStats(tg).Predicted)
	}
	if left == 0 {
		t.Error("nothing is predicted of requests that have just ended")
	}
	h.Tick(t0.Add(time.Minute))
	for tg := range kv.Target(2) {
		if n := h.index.TargetStats(tg).Predicted; n != 0 {
			t.Errorf("target %d: %d blocks are predicted a minute later", tg, n)
		}
	}
	for w := range 3 {
		h.route(t, h.request(ids(161, w)), t0).Done(t0, Failed)
	}
	for tg := range kv.Target(2) {
		if n := h.index.TargetStats(tg).Predicted; n != 0 {
			t.Errorf("target %d: %d blocks of failed requests are predicted", tg, n)
		}
	}
}

// TestConcurrent is for the race detector: routes, events, ends, ticks at once.
func TestConcurrent(t *testing.T) {
	h := newHouse(t, 8, "dynamo")
	h.receipts.init(64) // to copy and sort 2,048 of them, over and over, would be all that it does
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 9))
			r := &Request{Model: "m"}
			for i := range 300 {
				h.Chains(&r.Prompt, "m", ids(16*(1+rnd.IntN(30)), rnd.IntN(5)), kv.Key{}, nil)
				d, err := h.Route(r, t0.Add(time.Duration(i)*time.Millisecond))
				if err != nil {
					t.Error(err)
					return
				}
				d.FirstToken(t0)
				d.Served(r.Prompt.Tokens, 0)
				d.Done(t0, Completed)
			}
		})
	}
	wg.Go(func() {
		other := &house{Scheduler: h.Scheduler, table: h.table}
		for i := range 300 {
			other.store(kv.Target(i%8), ids(160, i%5))
		}
	})
	wg.Go(func() {
		for i := range 300 {
			h.Tick(t0.Add(time.Duration(i) * time.Second))
			h.Receipts(nil, 10)
			h.SetTrust(kv.Target(i%8), kv.Exact, "test", t0)
		}
	})
	wg.Wait()
	for tg := range kv.Target(8) {
		if l := h.Load(tg, t0); l != (kv.Load{}) {
			t.Errorf("target %d owes %+v", tg, l)
		}
	}
}

func benchRoute(b *testing.B, targets, blocks int) {
	h := newHouse(b, targets, "dynamo")
	prompt := ids(16*blocks, 1)
	for tg := range targets {
		h.store(kv.Target(tg), prompt[:16*(blocks/2+tg%(blocks/2))])
	}
	r := h.request(prompt)
	b.ReportAllocs()
	for b.Loop() {
		d, err := h.Route(r, t0)
		if err != nil {
			b.Fatal(err)
		}
		d.Done(t0, Completed)
	}
}

// BenchmarkDecision is one decision with its booking and its end.
func BenchmarkDecision(b *testing.B) {
	for _, c := range []struct{ targets, blocks int }{{16, 500}, {64, 500}, {64, 2000}, {1000, 500}} {
		b.Run(fmt.Sprintf("%dx%d", c.targets, c.blocks), func(b *testing.B) { benchRoute(b, c.targets, c.blocks) })
	}
}

// Persistent over-prediction raises one alarm, chance evictions don't.
func TestDriftAlarm(t *testing.T) {
	h := newHouse(t, 1, "dynamo")
	var alarms []string
	h.hooks.Drifted = func(_ kv.Target, why string) { alarms = append(alarms, why) }
	prompt := ids(1600, 1)
	h.store(0, prompt)
	serve := func(cached int) {
		d := h.route(t, h.request(prompt), t0)
		d.Served(1600, cached)
		d.Done(t0, Completed)
	}
	for i := range 64 {
		serve(1584 - 1584*(1-min(i%3, 1))) // every third is a phantom
	}
	if len(alarms) != 0 {
		t.Fatalf("alarm after chance phantoms: %q", alarms)
	}
	for range 16 {
		serve(160)
	}
	if len(alarms) != 1 {
		t.Errorf("%d alarms, want 1: %q", len(alarms), alarms)
	}
}

// A request that was answered, but whose blocks the engine never announced, is
// counted: the tokens are in doubt.
func TestUnconfirmed(t *testing.T) {
	h := newHouse(t, 1, "dynamo")
	h.SetTrust(0, kv.Exact, "", t0)
	serve := func(prompt []uint32, announce bool) {
		d := h.route(t, h.request(prompt), t0)
		if announce {
			h.store(0, prompt)
		}
		d.FirstToken(t0)
		d.Done(t0, Completed)
		h.Tick(t0.Add(time.Minute))
	}
	serve(ids(160, 1), true)
	serve(ids(160, 2), false)
	if st := h.State(0); st.Confirmed != 1 || st.Unconfirmed != 1 {
		t.Errorf("%d confirmed, %d not; want 1 and 1", st.Confirmed, st.Unconfirmed)
	}
}

// A watcher is a policy that keeps what it is told to learn from.
type watcher struct {
	policy.Policy
	first []kv.FirstToken
	done  []kv.Done
}

func (w *watcher) FirstToken(o *kv.FirstToken) { w.first = append(w.first, *o) }
func (w *watcher) Done(o *kv.Done)             { w.done = append(w.done, *o) }

// The ledger's word that others came behind a request reaches the policy.
func TestJoinedIsPassedOn(t *testing.T) {
	h := newHouse(t, 1, "least_load")
	w := &watcher{Policy: h.policy}
	h.policy = w
	a := h.route(t, h.request(ids(160, 1)), t0)
	b := h.route(t, h.request(ids(320, 2)), t0)
	for _, d := range []*Decision{a, b} {
		d.FirstToken(t0.Add(time.Second))
	}
	if len(w.first) != 2 || w.first[0].Joined != 320 || w.first[1].Joined != 0 {
		t.Errorf("first tokens: %+v, want 320 tokens behind the first one and none behind the second", w.first)
	}
}

// What another router has placed is booked here, but the time at which we hear of
// its first token is no time of the engine's.
func TestNewsOfPeersIsMarked(t *testing.T) {
	h := newHouse(t, 2, "least_load")
	w := &watcher{Policy: h.policy}
	h.policy = w
	there := kv.Target(1)
	own, told := h.request(ids(160, 1)), h.request(ids(160, 2))
	told.Only = &there
	a, b := h.route(t, own, t0), h.route(t, told, t0)
	if b.Target != there {
		t.Fatalf("told of target %d, booked on %d", there, b.Target)
	}
	for _, d := range []*Decision{a, b} {
		d.FirstToken(t0.Add(time.Second))
		d.Progress(10, t0.Add(2*time.Second))
		d.Done(t0.Add(3*time.Second), Completed)
	}
	if len(w.first) != 2 || w.first[0].FromPeer || !w.first[1].FromPeer {
		t.Errorf("first tokens: %+v, want the second one as a peer's", w.first)
	}
	if len(w.done) != 2 || w.done[0].FromPeer || !w.done[1].FromPeer {
		t.Errorf("ends: %+v, want the second one as a peer's", w.done)
	}
}
