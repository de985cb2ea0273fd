package policy

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"kvasir/kv"
)

// Sessions that return 3 s after their answer, one in two of them: the hazard
// says so, and nothing of other ages.
func TestHazard(t *testing.T) {
	var h hazard
	for k := range 1000 {
		if k%2 == 0 {
			h.expose(0, 3.5)
			h.event(3.5)
		} else {
			h.expose(0, 250)
		}
	}
	h.cumulate()
	chance := func(age, lo, hi float64) float64 {
		return math.Exp(h.sum(age)-h.sum(age+lo)) - math.Exp(h.sum(age)-h.sum(age+hi))
	}
	for _, c := range []struct{ age, lo, hi, want float64 }{
		{0, 2, 4, .5}, {0, 0, 1, 0}, {3, 0, 1, .5}, {5, 0, 16, 0}, {300, 0, 16, 0},
	} {
		// 3 to 4 s is one bin: half return half-way, so its rate is
		// 500/(500*.5+500*1) and 1-exp(-.667) of those who reach it return.
		if got := chance(c.age, c.lo, c.hi); math.Abs(got-c.want) > .02 {
			t.Errorf("at age %v: chance of %v to %v s is %.3f, want %v", c.age, c.lo, c.hi, got, c.want)
		}
	}
	// It forgets: the weight of the past is bounded.
	for range 30000 {
		h.event(1)
	}
	h.cumulate()
	if h.total > 20000 {
		t.Errorf("%v events kept", h.total)
	}
}

// The table of leaves against a map, with every way that a leaf comes and goes.
func TestReturnsTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	x := newReturns()
	twin := map[kv.Hash]kv.Target{}
	tags := map[kv.Hash]uint64{}
	now := t0
	for k := range 4000 {
		now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
		if k%100 == 0 {
			gone := kv.Target(r.IntN(3))
			x.forget(gone)
			for h, home := range twin {
				if home == gone {
					delete(twin, h)
				}
			}
		}
		prompt := []kv.Hash{kv.Hash(r.IntN(50)), kv.Hash(50 + r.IntN(200)), kv.Hash(250 + r.IntN(400))}[:1+r.IntN(3)]
		want := kv.Hash(math.MaxUint64)
		for i := len(prompt) - 1; i >= 0 && want == math.MaxUint64; i-- {
			if _, ok := twin[prompt[i]]; ok {
				want = prompt[i]
			}
		}
		own := x.find(prompt)
		if own >= 0 && x.leaves[own].hash != want || own < 0 && want != math.MaxUint64 {
			// The tables agree but for leaves that were let go by age.
			t.Fatalf("step %d: continues %d, want %d", k, own, want)
		}
		home := kv.Target(r.IntN(3))
		h := prompt[len(prompt)-1]
		delete(twin, want)
		tags[h] = x.placed(now, own, h, home, r.Float64()*20, 0)
		twin[h] = home
		for h := range twin { // who was let go
			if s := x.slot(h); x.slots[s] == 0 {
				delete(twin, h)
			}
		}
		if r.IntN(2) == 0 {
			x.ended(now.Add(time.Second), tags[h])
		}
		for h, tag := range tags {
			if r.IntN(50) == 0 {
				x.ended(now, tag) // late and repeated news
				delete(tags, h)
			}
		}
		live := 0
		for i := range x.leaves {
			if x.leaves[i].live {
				live++
			}
		}
		if live != x.used || live != len(twin) {
			t.Fatalf("step %d: %d leaves, %d in use, want %d", k, live, x.used, len(twin))
		}
	}
	// What is credited is what the leaves say.
	var sum int32
	var total float64
	for i := range x.leaves {
		if x.leaves[i].live {
			for _, a := range x.leaves[i].chance {
				sum += a
			}
		}
	}
	for home := range kv.Target(3) {
		_, n := x.burden(home, -1, 0, 0)
		total += n
	}
	if float64(sum)/certain != total || sum == 0 {
		t.Errorf("leaves expect %v returns, targets %v", float64(sum)/certain, total)
	}
	// All are let go in the end, and nothing of them remains.
	x.sweep(x.seconds(now.Add(time.Hour)))
	if x.used != 0 {
		t.Errorf("%d leaves an hour later", x.used)
	}
	for home, d := range x.due {
		if d != nil && *d != (due{}) {
			t.Errorf("target %d expects %+v of nobody", home, d)
		}
	}
}

func TestReturnsAreBounded(t *testing.T) {
	x := newReturns()
	for k := range maxLeaves + 1000 {
		if tag := x.placed(t0, -1, kv.Hash(k), 0, 1, 0); (tag == 0) != (k >= maxLeaves) {
			t.Fatalf("leaf %d: tag %x", k, tag)
		}
	}
}

// What targets expect is what their sessions, one by one, would lose.
func TestDueIsTheSum(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	x := newReturns()
	for k := range 300 {
		l := leaf{hash: kv.Hash(k), live: true, home: 1, class: classOf(math.Exp(r.NormFloat64() * 3))}
		for j := range l.chance {
			l.chance[j] = r.Int32N(certain / 3)
		}
		x.leaves = append(x.leaves, l)
		x.credit(&l, 1)
	}
	for range 200 {
		own, from := r.IntN(300), math.Exp(r.NormFloat64()*2)-.1
		to := from + math.Exp(r.NormFloat64()*2)
		cost, expected := x.burden(1, own, from, to)
		var want, n float64
		for i := range x.leaves {
			if l := &x.leaves[i]; i != own {
				for j, a := range l.chance {
					mid := (intervalEdges[j] + intervalEdges[j+1]) / 2
					loss := func(b float64) float64 {
						return max(0, min(b-mid, moveStep*math.Pow(2, float64(l.class))))
					}
					want += float64(a) / certain * (loss(to) - loss(from))
					n += float64(a) / certain
				}
			}
		}
		if math.Abs(cost-want) > 1e-9*(1+want) || math.Abs(expected-n) > 1e-9*n {
			t.Fatalf("from %v to %v: %v of %v, one by one %v of %v", from, to, cost, expected, want, n)
		}
	}
}

// A session is brought up to date within 5 s however many there are, and none of
// the placements pays for all of them.
func TestSweepGoesRound(t *testing.T) {
	x := newReturns()
	for k := range 10000 {
		x.placed(t0, -1, kv.Hash(k), 0, 1, 0)
	}
	for k := range 60 { // 0.1 s apart
		before := x.next
		x.placed(at(float64(k+1)*.1), -1, kv.Hash(20000+k), 0, 1, 0)
		if n := (x.next - before + len(x.leaves)) % len(x.leaves); n > 250 {
			t.Fatalf("placement %d brings %d leaves up to date", k, n)
		}
	}
	for i := range x.leaves[:10000] {
		if x.leaves[i].seen < .9 {
			t.Fatalf("leaf %d was last looked at %v s after the start", i, x.leaves[i].seen)
		}
	}
}

// Delay and returns (docs/cost.md, "steer") by hand: one session that said it returns in 1.5 s
// and would lose at most 3.2 s by moving.
func TestReturnsBurden(t *testing.T) {
	x := newReturns()
	tag := x.placed(t0, -1, 7, 2, 3.3, 1500*time.Millisecond)
	x.ended(t0, tag)
	for _, c := range []struct{ from, to, want float64 }{
		{0, 1, 0},                // drained before it comes back at 1.5 s
		{0, 2.5, .9 * 1},         // it waits 1 s
		{2, 2.5, .9 * .5},        // half of which it would have waited anyway
		{0, 100, .9 * 3.2},       // it moves instead
		{50, 100, 0},             // as it would have
		{0, 1.5 + 3.2, .9 * 3.2}, // just so
	} {
		got, n := x.burden(2, -1, c.from, c.to)
		if math.Abs(got-c.want) > 1e-6 || math.Abs(n-.9) > 1e-6 {
			t.Errorf("from %v to %v: %v with %v expected, want %v with .9", c.from, c.to, got, n, c.want)
		}
	}
	if got, n := x.burden(2, x.find([]kv.Hash{1, 7}), 0, 100); got != 0 || n > 1e-9 {
		t.Errorf("its own return is held against it: %v, %v", got, n)
	}
	if got, _ := x.burden(1, -1, 0, 100); got != 0 {
		t.Errorf("another target bears %v", got)
	}
}

// A newcomer without cache anywhere leaves alone the target to which a session is
// about to return, though it is idle too. marginal can't tell them apart.
func TestSteerSparesReturners(t *testing.T) {
	cfg := named("steer")
	cfg.Marginal.Coefficients = nominal
	p := must(t, cfg, lowestIndex)
	cands := fleet(2)
	mine := &Request{Now: t0, Tokens: 16000, Hashes: []kv.Hash{1, 2, 3}, BlockSize: 16, NextTurn: 100 * time.Millisecond}
	if i := run(p, mine, cands); i != 0 {
		t.Fatal(i)
	}
	if mine.Tag == 0 {
		t.Fatal("no tag")
	}
	p.Done(&kv.Done{Now: at(1), Tag: mine.Tag, Target: 0, Prompt: 16000, Output: 10})
	stranger := &Request{Now: at(1), Tokens: 30000, Hashes: []kv.Hash{9}, BlockSize: 16}
	if i := p.Pick(stranger, cands); i != 1 {
		t.Errorf("the stranger went to %d, where a session is about to return", i)
	}
	if cands[0].Terms[5] <= 0 {
		t.Errorf("price of the return: %v", cands[0].Terms[5])
	}
	cands[0].Overlap.GPU = 15999
	back := &Request{Now: at(1.1), Tokens: 16500, Hashes: []kv.Hash{1, 2, 3, 4}, BlockSize: 16}
	if i := run(p, back, cands); i != 0 {
		t.Errorf("the session itself went to %d", i)
	}
	q := must(t, func() Config { c := cfg; c.Name = "marginal"; return c }(), lowestIndex)
	if i := q.Pick(stranger, fleet(2)); i != 0 {
		t.Error("marginal sees a difference: the test shows nothing")
	}
}

// What a peer has placed comes with one candidate, as there is nothing to choose.
// It is a part of the load of the whole fleet all the same, it doesn't say that
// nobody else holds the prompt, and moving away costs the prompt.
func TestSteerHearsOfPeers(t *testing.T) {
	cfg := named("steer")
	cfg.Marginal.Coefficients = nominal
	kappa := func(peer bool) (*steer, float64) {
		p := must(t, cfg, lowestIndex).(*steer)
		for k := range 200 {
			cands := fleet(8)
			req := &Request{Now: at(float64(k)), Tokens: 20000, BlockSize: 512}
			for i := range 39 {
				req.Hashes = append(req.Hashes, kv.Hash(h64(uint64(k/2*100+i)))) // each prompt twice
			}
			for i := range cands[1:] {
				cands[1+i].Overlap.GPU = int32(39 * 512 * (k % 2)) // where it was placed first, and elsewhere
			}
			i := p.Pick(req, cands)
			if k%4 == 1 && peer {
				cands, i = cands[:1], 0 // placed by a peer where it isn't held
			}
			p.Placed(req, cands, i)
		}
		return p, p.kappa()
	}
	_, alone := kappa(false)
	p, peers := kappa(true)
	if peers > 2*alone+.3 || peers < alone {
		t.Errorf("kappa is %.2f, with a quarter of the placements by a peer %.2f", alone, peers)
	}
	if p.regret != 0 {
		t.Errorf("regrets %v blocks that others hold", p.regret)
	}
	tag := func() uint64 {
		req := &Request{Now: at(300), Tokens: 20000, BlockSize: 512, Hashes: []kv.Hash{77}}
		cands := fleet(1)
		cands[0].Overlap.GPU = 19999
		run(p, req, cands)
		return req.Tag
	}()
	if f := &p.returns.leaves[uint32(tag)-1]; f.class < 4 {
		t.Errorf("to move a prompt of 1.3 s is of class %d (%v s)", f.class, moveStep*float64(int(1)<<f.class))
	}
}

// The price of prefill rises with the load and with what evictions lose, within
// bounds, and falls again.
func TestSteerKappa(t *testing.T) {
	cfg := named("steer")
	cfg.Marginal.Coefficients = nominal
	p := must(t, cfg, lowestIndex).(*steer)
	cands := fleet(2)
	if k := p.kappa(); k != 0 {
		t.Errorf("idle: %v", k)
	}
	request := func(s float64, base int) {
		req := &Request{Now: at(s), Tokens: 20000, BlockSize: 512}
		for i := range 39 {
			req.Hashes = append(req.Hashes, kv.Hash(h64(uint64(base*100+i))))
		}
		run(p, req, cands)
	}
	for k := range 100 { // 1.35 s each for two targets: 68 %
		request(float64(k), k)
	}
	if k := p.kappa(); k < .9 || k > 1.6 {
		t.Errorf("at 54 %% load by now: kappa %v, rho %v", k, p.rho)
	}
	before := p.kappa()
	for k := range 100 { // the same prompts again, and nobody has them
		request(100+float64(k), k)
	}
	if p.regret/p.written < .3 || p.kappa() <= before {
		t.Errorf("regret %v of %v written, kappa %v", p.regret, p.written, p.kappa())
	}
	for k := range 2000 {
		request(200+float64(k)*.01, 1000+k)
	}
	if k := p.kappa(); k > p.price.MaxCongestion+p.price.MaxRegret {
		t.Errorf("overload: kappa %v", k)
	}
	request(10000, 99999)
	if k := p.kappa(); k > .1 {
		t.Errorf("hours later: kappa %v", k)
	}
}
