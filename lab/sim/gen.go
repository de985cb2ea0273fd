package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"

	"kvasir/kv"
)

// genBlock is the tokens per block of generated workloads, as in the traces.
const genBlock = 512

// A generator makes a workload out of parameters. Defaults are per replica where
// a fleet's size matters.
type generator struct {
	name string
	help string
	// params has the names and defaults, in the order in which they are shown.
	params []param
	make   func(p *params) (*Workload, error)
}

// A param is one parameter: its default and the range that is accepted.
type param struct {
	name      string
	value     float64
	low, high float64
	help      string
}

// params are the values that one Generate call uses.
type params struct {
	name     string
	replicas int
	values   map[string]float64
}

func (p *params) f(name string) float64 {
	v, ok := p.values[name]
	if !ok {
		panic("sim: generator " + p.name + " has no parameter " + name)
	}
	return v
}

func (p *params) n(name string) int { return int(p.f(name)) }

func (p *params) dice() *rand.Rand { return rand.New(rand.NewPCG(uint64(p.f("seed")), 2)) }

// common parameters of open loops.
func openParams(more ...param) []param {
	return append([]param{
		{"requests", 6000, 1, 1e8, "in all"},
		{"rate", 1, 1e-6, 1e6, "arrivals per second and replica, Poisson"},
		{"output", 200, 1, 1e6, "mean output tokens, exponential"},
		{"seed", 1, 0, 1 << 52, "of lengths and arrivals"},
	}, more...)
}

func generators() []generator {
	return []generator{
		{"uniform", "prompts of one length that share nothing", openParams(param{"input", 4000, 1, 1e7, "prompt tokens"}), genUniform},
		{"shared_prefix", "prompts that begin with one of several prefixes, Zipf", openParams(
			param{"prefixes", 64, 1, 1e6, "how many there are"},
			param{"prefix", 4096, 1, 1e7, "tokens of each"},
			param{"input", 512, 1, 1e7, "mean own tokens behind it, exponential"},
			param{"zipf", 1, 0, 10, "exponent of their popularity"}), genShared},
		{"hot_prefix", "one prefix in a given share of the requests, the rest share nothing", openParams(
			param{"prefix", 8192, 1, 1e7, "tokens of the hot prefix"},
			param{"input", 1024, 1, 1e7, "mean own tokens, exponential"},
			param{"share", .6, 0, 1, "of the requests that have it"}), genHot},
		{"diurnal", "conversations under a rate that swings like a day", openParams(
			param{"swing", .8, 0, 1, "amplitude of the rate over its mean"},
			param{"period", 600, 1, 1e7, "seconds of a day"},
			param{"turns", 6, 1, 1e4, "mean turns of a conversation, geometric"},
			param{"think", 20, 0, 1e6, "mean seconds between its turns, exponential"},
			param{"input", 1500, 1, 1e6, "mean new tokens per turn, exponential"}), genDiurnal},
		{"burst", "bursts of requests on prefixes that are new with each (docs/mock.md, cold burst)", []param{
			{"bursts", 30, 1, 1e6, "how many"},
			{"gap", 6, 1e-3, 1e6, "seconds between them"},
			{"size", 40, 1, 1e6, "requests in each"},
			{"spacing", .002, 0, 1e3, "seconds between those"},
			{"prefixes", 5, 1, 1e6, "new ones in each burst"},
			{"prefix", 8192, 1, 1e7, "tokens of each"},
			{"input", 300, 1, 1e7, "own tokens"},
			{"output", 100, 1, 1e6, "tokens"}}, genBurst},
		{"tool", "tools with two hot prefixes and short answers, and conversations (docs/mock.md)", []param{
			{"requests", 12000, 1, 1e7, "to generate"},
			{"limit", 6000, 1, 1e7, "first ones to play"},
			{"speed", 2.2, 1e-6, 1e6, "factor on the rate of 6.5/s"},
			{"seed", 5, 0, 1 << 52, "of random.Random"}}, genTool},
		{"agent_serial", "agents that each play one session after the other, closed loop", []param{
			{"users", 6, 1, 1e6, "per replica"},
			{"requests", 300, 1, 1e8, "per replica, in all"},
			{"turns", 30, 1, 1e4, "mean turns of a session, geometric"},
			{"system", 12288, 0, 1e7, "tokens that all sessions share"},
			{"input", 2000, 1, 1e6, "mean new tokens per turn, exponential"},
			{"output", 300, 1, 1e6, "mean output tokens, exponential"},
			{"think", 8, 0, 1e6, "mean seconds between turns, exponential"},
			{"seed", 1, 0, 1 << 52, "of all of it"}}, genAgents},
		{"conversations", "conversations of one shape, so many at a time, closed loop; small blocks for small caches", talkParams, genTalks},
		{"rl_rollouts", "asynchronous RL rollouts with stragglers (docs/mock.md)", []param{
			{"steps", 32, 1, 1e6, "of training"},
			{"per_step", 8, 1, 1e4, "rollouts of each"},
			{"in_flight", 16, 1, 1e5, "rollouts at a time"},
			{"turns", 10, 1, 1e3, "of each"},
			{"stragglers", 2, 0, 1e4, "rollouts of each step with a long last turn"},
			{"seed", 11, 0, 1 << 52, "which ones, random.Random"}}, genRollouts},
		{"rl_published", "RL rollouts as published: one pool of credits for turns (docs/mock.md)", []param{
			{"steps", 10, 1, 1e5, "of training"},
			{"credits", 16, 1, 1e5, "turns in flight"},
			{"fifo", 0, 0, 1, "1: a freed credit goes to the longest ready turn; 0: continuations first"}}, genPublished},
	}
}

// Generators lists the generators with their parameters, for help texts.
func Generators() []string {
	var out []string
	for _, g := range generators() {
		var b strings.Builder
		fmt.Fprintf(&b, "%s: %s", g.name, g.help)
		for _, p := range g.params {
			fmt.Fprintf(&b, "\n    %s=%s  %s", p.name, strconv.FormatFloat(p.value, 'g', -1, 64), p.help)
		}
		out = append(out, b.String())
	}
	return out
}

// Generate makes a workload from a text such as "uniform" or
// "shared_prefix:rate=2,zipf=1.2".
func Generate(spec string, replicas int) (*Workload, error) {
	name, rest, _ := strings.Cut(spec, ":")
	var names []string
	for _, g := range generators() {
		if g.name == name {
			p, err := g.parse(rest)
			if err != nil {
				return nil, err
			}
			if replicas < 1 {
				return nil, fmt.Errorf("sim: replicas is %d, must be at least 1", replicas)
			}
			p.replicas = replicas
			w, err := g.make(p)
			if err == nil {
				w.name = spec
			}
			return w, err
		}
		names = append(names, g.name)
	}
	return nil, fmt.Errorf("sim: generator %q is unknown: use one of %s", name, strings.Join(names, ", "))
}

func (g *generator) parse(rest string) (*params, error) {
	p := &params{name: g.name, values: map[string]float64{}}
	var names []string
	for _, d := range g.params {
		p.values[d.name] = d.value
		names = append(names, d.name)
	}
	for _, part := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		key, text, _ := strings.Cut(part, "=")
		i := slices.Index(names, key)
		if i < 0 {
			return nil, fmt.Errorf("sim: generator %s has no parameter %q: there are %s", g.name, key, strings.Join(names, ", "))
		}
		v, err := strconv.ParseFloat(text, 64)
		d := g.params[i]
		if err != nil || !(v >= d.low && v <= d.high) {
			return nil, fmt.Errorf("sim: generator %s: %s is %q, must be a number between %v and %v", g.name, key, text, d.low, d.high)
		}
		p.values[key] = v
	}
	return p, nil
}

// ids hands out block ids that nobody else has.
type ids struct{ next kv.Hash }

func (s *ids) fresh(n int) []kv.Hash {
	b := make([]kv.Hash, n)
	for i := range b {
		b[i] = s.next
		s.next++
	}
	return b
}

// exp draws an exponential length of the given mean, at least 1.
func exp(r *rand.Rand, mean float64) int { return max(1, int(mean*r.ExpFloat64())) }

// openLoop makes Poisson arrivals; one fills in everything but the time.
func openLoop(p *params, one func(i int, r *rand.Rand, a *openArrival)) *Workload {
	w := &Workload{size: genBlock, speed: 1}
	r := p.dice()
	t, rate := 0.0, p.f("rate")*float64(p.replicas)
	for i := range p.n("requests") {
		t += r.ExpFloat64() / rate
		a := openArrival{at: t, conv: int32(i), session: h64(uint64(i)), out: exp(r, p.f("output"))}
		one(i, r, &a)
		w.open = append(w.open, a)
	}
	return w
}

func genUniform(p *params) (*Workload, error) {
	s := &ids{}
	return openLoop(p, func(_ int, _ *rand.Rand, a *openArrival) {
		a.prompt = p.n("input")
		a.blocks = s.fresh(a.prompt / genBlock)
	}), nil
}

func genShared(p *params) (*Workload, error) {
	s := &ids{}
	n := p.n("prefix") / genBlock
	var prefixes [][]kv.Hash
	var weight []float64
	sum := 0.0
	for i := range p.n("prefixes") {
		prefixes = append(prefixes, s.fresh(n))
		sum += math.Pow(float64(i+1), -p.f("zipf"))
		weight = append(weight, sum)
	}
	return openLoop(p, func(_ int, r *rand.Rand, a *openArrival) {
		k := min(sort.SearchFloat64s(weight, r.Float64()*sum), len(weight)-1)
		a.prompt = p.n("prefix") + exp(r, p.f("input"))
		a.session = h64(uint64(k))
		a.blocks = append(slices.Clone(prefixes[k]), s.fresh(a.prompt/genBlock-n)...)
	}), nil
}

func genHot(p *params) (*Workload, error) {
	s := &ids{}
	hot := s.fresh(p.n("prefix") / genBlock)
	return openLoop(p, func(_ int, r *rand.Rand, a *openArrival) {
		a.prompt = p.n("prefix") + exp(r, p.f("input"))
		if r.Float64() < p.f("share") {
			a.blocks = append(slices.Clone(hot), s.fresh(a.prompt/genBlock-len(hot))...)
			return
		}
		a.blocks = s.fresh(a.prompt / genBlock)
	}), nil
}

func genBurst(p *params) (*Workload, error) {
	w := &Workload{size: genBlock, speed: 1}
	s := &ids{}
	n, prefixes := p.n("prefix")/genBlock, p.n("prefixes")
	for b := range p.n("bursts") {
		fresh := make([][]kv.Hash, prefixes)
		for i := range fresh {
			fresh[i] = s.fresh(n)
		}
		for k := range p.n("size") {
			conv := b*prefixes + k%prefixes
			w.open = append(w.open, openArrival{at: float64(b)*p.f("gap") + float64(k)*p.f("spacing"), prompt: p.n("prefix") + p.n("input"), out: p.n("output"),
				conv: int32(conv), session: uint64(conv), blocks: fresh[k%prefixes]})
		}
	}
	sort.SliceStable(w.open, func(i, j int) bool { return w.open[i].at < w.open[j].at })
	return w, nil
}

// genDiurnal thins a Poisson stream of conversation starts; turns follow at fixed
// times, so that the loop stays open.
func genDiurnal(p *params) (*Workload, error) {
	w := &Workload{size: genBlock, speed: 1}
	r, s := p.dice(), &ids{}
	system := s.fresh(2)
	starts := p.f("rate") * float64(p.replicas) / p.f("turns")
	for t, conv := 0.0, 0; len(w.open) < p.n("requests"); conv++ {
		t += r.ExpFloat64() / (starts * (1 + p.f("swing")))
		if r.Float64() > (1+p.f("swing")*math.Sin(2*math.Pi*t/p.f("period")))/(1+p.f("swing")) {
			continue
		}
		blocks, prompt := slices.Clone(system), len(system)*genBlock
		for at := t; len(w.open) < p.n("requests"); at += p.f("think") * r.ExpFloat64() {
			prompt += exp(r, p.f("input"))
			blocks = append(blocks, s.fresh(prompt/genBlock-len(blocks))...)
			out := exp(r, p.f("output"))
			w.open = append(w.open, openArrival{at: at, prompt: prompt, out: out, conv: int32(conv), session: h64(uint64(conv)), blocks: slices.Clone(blocks)})
			prompt += out
			if r.Float64() < 1/p.f("turns") || prompt > 100_000 {
				break
			}
		}
	}
	sort.SliceStable(w.open, func(i, j int) bool { return w.open[i].at < w.open[j].at })
	return w, nil
}

func genAgents(p *params) (*Workload, error) {
	r, s := p.dice(), &ids{}
	system := s.fresh(p.n("system") / genBlock)
	s.next = sharedIDs
	crowd := Crowd{Users: p.n("users") * p.replicas, Requests: p.n("requests") * p.replicas}
	for u := range crowd.Users {
		crowd.Start = append(crowd.Start, 20*float64(u)/float64(crowd.Users))
	}
	var list []chat
	for turns := 0; turns < crowd.Requests; {
		var c chat
		blocks, prompt := slices.Clone(system), p.n("system")
		for {
			prompt += exp(r, p.f("input"))
			blocks = append(blocks, s.fresh(prompt/genBlock-len(blocks))...)
			out := exp(r, p.f("output"))
			c.turns = append(c.turns, chatTurn{think: p.f("think") * r.ExpFloat64(), prompt: prompt, out: out, blocks: slices.Clone(blocks)})
			turns++
			prompt += out
			if r.Float64() < 1/p.f("turns") || prompt > 120_000 {
				break
			}
		}
		list = append(list, c)
	}
	return &Workload{size: genBlock, speed: 1, total: crowd.Requests, crowdReplicas: p.replicas, chats: list,
		closed: func(paged bool) source {
			return &crowdSource{chats: list, crowd: crowd, pause: 1, paged: paged, size: genBlock}
		}}, nil
}

func genRollouts(p *params) (*Workload, error) {
	r := &Rollouts{Steps: p.n("steps"), PerStep: p.n("per_step"), Turns: p.n("turns"), InFlight: p.n("in_flight"),
		Input: 2048, SharedBlocks: 1, OwnBlocks: 3, BlockSize: genBlock, Output: 1024, StragglerOutput: 8192, Feedback: 64, Think: .2, Spacing: .01}
	n := p.n("stragglers")
	if n > r.PerStep {
		return nil, fmt.Errorf("sim: generator rl_rollouts: %d stragglers, but a step has %d rollouts", n, r.PerStep)
	}
	dice := NewPython(uint64(p.f("seed")))
	for range r.Steps {
		r.Stragglers = append(r.Stragglers, dice.Sample(r.PerStep, n))
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	return rolloutWorkload(p.name, r), nil
}

// genTool is the stand-in for the tool-and-agent trace, draw by draw as
// the reference has it.
func genTool(p *params) (*Workload, error) {
	w := &Workload{size: genBlock, speed: p.f("speed")}
	r := NewPython(uint64(p.f("seed")))
	s := &ids{next: 1_000_000}
	a, b, s0 := s.fresh(12), s.fresh(5), s.fresh(1)
	type talk struct {
		i      int
		blocks []kv.Hash
	}
	var live []*talk
	join := func(x, y []kv.Hash) []kv.Hash { return append(slices.Clone(x), y...) }
	pick := func(list []int) int { return list[r.Intn(len(list))] }
	t := 0.0
	for i := range p.n("requests") {
		t += r.Exp(6.5)
		x := r.Float64()
		q := openArrival{at: t, conv: int32(i)}
		kind := ""
		switch {
		case x < .34:
			kind = fmt.Sprintf("('a', %d)", i)
			q.blocks = join(a, s.fresh(pick([]int{0, 1, 1, 2, 3, 4})))
			q.prompt = 512*len(q.blocks) + r.Intn(512)
			if q.out = 3; r.Float64() >= .55 {
				q.out = 20 + r.Intn(60)
			}
		case x < .56:
			kind = fmt.Sprintf("('b', %d)", i)
			q.blocks = join(b, s.fresh(pick([]int{1, 1, 2})-1))
			q.prompt = 512*len(q.blocks) + r.Intn(512)
			q.out = 15 + r.Intn(11)
		default:
			var c *talk
			if len(live) > 0 && r.Float64() < .62 {
				c = live[r.Intn(len(live))]
			} else {
				c = &talk{i, join(s0, s.fresh(int(min(150, r.LogNormal(2.6, 1)))))}
				if live = append(live, c); len(live) > 160 {
					live = slices.Delete(live, 0, 1)
				}
			}
			kind = fmt.Sprintf("('c', %d)", c.i)
			q.conv = int32(c.i)
			q.blocks = slices.Clone(c.blocks)
			q.prompt = 512*len(q.blocks) + r.Intn(512)
			q.out = int(min(2000, max(5, r.LogNormal(5.6, .7))))
			c.blocks = append(c.blocks, s.fresh(1+q.out/512+int(r.Exp(.5)))...)
			if len(c.blocks) > 230 {
				live = slices.DeleteFunc(live, func(o *talk) bool { return o == c })
			}
		}
		q.session = fnvText(kind)
		w.open = append(w.open, q)
	}
	w.open = w.open[:min(p.n("limit"), len(w.open))]
	// Sessions are numbered by their first request; sessions() wants them dense.
	dense := map[int32]int32{}
	for i := range w.open {
		id, ok := dense[w.open[i].conv]
		if !ok {
			id = int32(len(dense))
			dense[w.open[i].conv] = id
		}
		w.open[i].conv = id
	}
	return w, nil
}
