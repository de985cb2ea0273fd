package policy

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"kvasir/kv"
)

func ptr[T any](v T) *T { return &v }

func dynamoWith(edit func(*Dynamo), intn func(int) int) *dynamo {
	d := Defaults().Dynamo
	if edit != nil {
		edit(&d)
	}
	return newDynamo(d.Effective(), intn)
}

// blocksLong is a request of n full blocks of 16 tokens.
func blocksLong(n int) *Request {
	return &Request{Tokens: 16 * n, Hashes: make([]kv.Hash, n), BlockSize: 16}
}

func TestDynamoCost(t *testing.T) {
	type row struct {
		gpu, host, disk  int // blocks held
		prefill          int // blocks owed
		active, requests int
		want             float64
	}
	for _, c := range []struct {
		name   string
		edit   func(*Dynamo)
		blocks int
		rows   []row
		pick   int
	}{
		{"docs/design-docs/router-design.md: raw 10, overlaps 2/5/8, decode 10/5/9", nil, 10,
			[]row{{gpu: 2, active: 10, want: 18}, {gpu: 5, active: 5, want: 10}, {gpu: 8, active: 9, want: 11}}, 1},
		{"expected.json decay: plain", func(d *Dynamo) { d.ActiveBlocks = false }, 8,
			[]row{{gpu: 6, want: 2}, {gpu: 6, prefill: 8, want: 10}}, 0},
		{"expected.json decay: decay 1 credits 3 of 6", func(d *Dynamo) { d.ActiveBlocks = false; d.CreditDecay = 1 }, 8,
			[]row{{gpu: 6, want: 2}, {gpu: 6, prefill: 8, want: 13}}, 0},
		{"decay leaves host and disk alone", func(d *Dynamo) { d.CreditDecay = 1 }, 8,
			[]row{{prefill: 16, want: 24}, {gpu: 4, host: 2, disk: 2, prefill: 24, want: 24 + 8 - 2 - 1.5 - .5}}, 0},
		{"tiers: .75 on host, .25 on disk", nil, 10,
			[]row{{gpu: 4, want: 6}, {gpu: 2, host: 4, want: 5}, {gpu: 1, host: 2, disk: 4, want: 6.5}}, 1},
		{"the credit eats the backlog but never goes below 0", func(d *Dynamo) { d.OverlapCredit = 3 }, 10,
			[]row{{gpu: 10, prefill: 5, active: 7, want: 7}, {want: 10}}, 0},
		{"marginal's worked example: long contexts at home, so it goes cold", nil, 750,
			[]row{{gpu: 600, prefill: 75, active: 3125, want: 3350}, {gpu: 100, active: 1000, want: 1650}, {want: 750}}, 2},
		{"request weight", func(d *Dynamo) { d.RequestWeight = 64 }, 10,
			[]row{{gpu: 10, requests: 1, want: 64}, {want: 10}}, 1},
		{"prefill scale 8", func(d *Dynamo) { d.PrefillScale = 8 }, 10,
			[]row{{gpu: 5, active: 30, want: 70}, {want: 80}}, 0},
		{"load-aware knows no caches", func(d *Dynamo) { d.Preset = "load-aware"; d.OverlapCredit = 5 }, 10,
			[]row{{gpu: 9, prefill: 1, want: 11}, {want: 10}}, 1},
		{"agentic: 2, 4, 64", func(d *Dynamo) { d.Preset = "agentic"; d.PrefillScale = 1 }, 10,
			[]row{{gpu: 3, requests: 1, active: 2, want: 4*4 + 2 + 64}, {want: 40}}, 1},
		{"decode stage: the credit is taken off decode", func(d *Dynamo) { d.DecodeStage = true; d.PrefillTokens = false }, 10,
			[]row{{gpu: 4, active: 10, prefill: 99, want: 6}, {active: 7, want: 7}}, 0},
		{"prefill not tracked, not a decode stage", func(d *Dynamo) { d.PrefillTokens = false }, 10,
			[]row{{gpu: 4, active: 10, prefill: 99, want: 10}, {active: 7, want: 7}}, 1},
	} {
		cands := fleet(len(c.rows))
		for i, r := range c.rows {
			cands[i].Overlap = kv.Overlap{GPU: int32(16 * r.gpu), Host: int32(16 * r.host), Disk: int32(16 * r.disk)}
			cands[i].Load = kv.Load{Prefill: 16 * r.prefill, DecodeBlocks: r.active, Requests: r.requests}
		}
		if got := dynamoWith(c.edit, lowestIndex).Pick(blocksLong(c.blocks), cands); got != c.pick {
			t.Errorf("%s: picked %d, want %d", c.name, got, c.pick)
		}
		for i, r := range c.rows {
			if math.Abs(cands[i].Cost-r.want) > 1e-9 {
				t.Errorf("%s: cost of %d is %v, want %v", c.name, i, cands[i].Cost, r.want)
			}
		}
	}
}

// Which targets Dynamo 1.6.1's selection service chose, with the loads that it
// reported before (shared/fixtures/dynamo_http): 160 tokens in 10 blocks, of
// which the three ranks hold 8, 4 and 2.
func TestDynamoCapture(t *testing.T) {
	type load struct{ prefill, active int }
	for _, c := range []struct {
		step  string
		held  [3]int
		loads [3]load
		edit  func(*Dynamo)
		costs [3]float64
	}{
		{"24", [3]int{8, 4, 2}, [3]load{}, nil, [3]float64{12, 16, 18}},
		{"40: a tie", [3]int{8, 4, 2}, [3]load{{64, 10}}, nil, [3]float64{16, 16, 18}},
		{"41", [3]int{8, 4, 2}, [3]load{{96, 10}}, nil, [3]float64{18, 16, 18}},
		{"53 credit 0", [3]int{8, 4, 2}, [3]load{{96, 10}}, func(d *Dynamo) { d.OverlapCredit = 0 }, [3]float64{26, 20, 20}},
		{"57: a tie", [3]int{8, 4, 2}, [3]load{{96, 10}, {96, 10}}, nil, [3]float64{18, 22, 18}},
	} {
		cands := fleet(3)
		for i := range cands {
			cands[i].Overlap.GPU = int32(16 * c.held[i])
			cands[i].Load = kv.Load{Prefill: c.loads[i].prefill, DecodeBlocks: c.loads[i].active, NewBlocks: 10 - c.loads[i].active}
		}
		dynamoWith(c.edit, lowestIndex).Pick(blocksLong(10), cands)
		if got := cands[1].Uncached; got != 96 { // effective_prefill_tokens
			t.Errorf("%s: books %d tokens, want 96", c.step, got)
		}
		for i, want := range c.costs {
			if cands[i].Cost != want {
				t.Errorf("%s: cost of %d is %v, want %v", c.step, i, cands[i].Cost, want)
			}
		}
	}
}

// Dynamo answers 1 potential block for a prompt of 3 tokens (dynamo_http 50).
func TestDynamoPartialBlock(t *testing.T) {
	cands := fleet(2)
	dynamoWith(nil, lowestIndex).Pick(&Request{Tokens: 3, BlockSize: 16}, cands)
	if got := cands[0].Terms[1]; got != 1 {
		t.Errorf("3 tokens are %v blocks, want 1", got)
	}
	req := blocksLong(10)
	req.Tokens += 5
	cands[0].Load = kv.Load{DecodeBlocks: 7, NewBlocks: 4}
	dynamoWith(nil, lowestIndex).Pick(req, cands)
	if got := cands[0].Terms[1]; got != 7+4+1 {
		t.Errorf("%v blocks, want 12", got)
	}
}

// A prompt that is held whole is credited whole, though the overlap stops at its
// last token.
func TestDynamoWholePrompt(t *testing.T) {
	cands := fleet(1)
	cands[0].Overlap.GPU = 159
	dynamoWith(nil, lowestIndex).Pick(blocksLong(10), cands)
	if cands[0].Cost != 0 {
		t.Errorf("cost %v, want 0", cands[0].Cost)
	}
}

func TestDynamoDeprecatedWeight(t *testing.T) {
	for _, c := range []struct {
		name          string
		edit          func(*Dynamo)
		credit, scale float64
	}{
		{"2 replaces the scale, credit untouched", func(d *Dynamo) { d.OverlapWeight = ptr(2.0); d.PrefillScale = 7; d.OverlapCredit = .5 }, .5, 2},
		{"0 replaces both", func(d *Dynamo) { d.OverlapWeight = ptr(0.0); d.PrefillScale = 7; d.OverlapCredit = .5 }, 0, 0},
		{"load-aware keeps the scale", func(d *Dynamo) { d.Preset = "load-aware"; d.OverlapWeight = ptr(3.0) }, 0, 3},
		{"agentic clears it", func(d *Dynamo) { d.Preset = "agentic"; d.OverlapWeight = ptr(0.0) }, 2, 4},
	} {
		d := Defaults().Dynamo
		c.edit(&d)
		if e := d.Effective(); e.OverlapCredit != c.credit || e.PrefillScale != c.scale || e.OverlapWeight != nil {
			t.Errorf("%s: credit %v, scale %v", c.name, e.OverlapCredit, e.PrefillScale)
		}
	}
	d := Defaults().Dynamo
	d.OverlapWeight = ptr(0.0)
	if n := d.Effective().needs(); n.Events {
		t.Error("weight 0 needs events")
	}
}

// Exact ties are uniform; with a temperature the odds are those of the softmax.
func TestDynamoChance(t *testing.T) {
	const n = 20000
	cands := fleet(3)
	cands[2].Overlap.GPU = 16 // costs 10, 10, 9
	req := blocksLong(10)
	tied := dynamoWith(func(d *Dynamo) { d.OverlapCredit = 0 }, seeded(1))
	warm := dynamoWith(func(d *Dynamo) { d.Temperature = .5 }, seeded(1))
	var ties, soft [3]int
	for range n {
		ties[tied.Pick(req, cands)]++
		soft[warm.Pick(req, cands)]++
	}
	w := math.Exp(-1 / .5)
	for i, want := range []float64{w / (1 + 2*w), w / (1 + 2*w), 1 / (1 + 2*w)} {
		if got := float64(soft[i]) / n; math.Abs(got-want) > .02 {
			t.Errorf("temperature .5: share of %d is %.3f, want %.3f", i, got, want)
		}
		if got := float64(ties[i]) / n; math.Abs(got-1./3) > .02 {
			t.Errorf("tie: share of %d is %.3f, want 1/3", i, got)
		}
	}
}

// The herding experiment of the reference program (testdata/herding.json): 48
// sessions of 3 turns whose work only accumulates; placements and makespan must
// come out exactly. Its cost counts half a block of decode per block, so here
// everything is doubled.
func TestHerdingExperiment(t *testing.T) {
	raw, err := os.ReadFile("testdata/herding.json")
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		FirstPrompts [][]uint32   `json:"first_prompts"`
		Appended     [][][]uint32 `json:"appended_by_turn"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name            string
		credit, decay   float64
		placed          [4]int
		prefill, decode []float64
		makespan        float64
		sticky          int
	}{
		{"c=1", 1, 0, [4]int{35, 36, 36, 37}, []float64{149, 153, 149, 163}, []float64{219.5, 220.5, 218.5, 207}, 373.5, 63},
		{"c=0", 0, 0, [4]int{35, 35, 39, 35}, []float64{216, 227, 212, 245}, []float64{219.5, 214.5, 227, 204.5}, 449.5, 31},
		{"c=1 g=.5", 1, .5, [4]int{34, 36, 35, 39}, []float64{160, 161, 172, 164}, []float64{215.5, 214, 213, 223}, 387, 63},
		{"c=1 g=1", 1, 1, [4]int{34, 37, 34, 39}, []float64{174, 176, 182, 176}, []float64{215.5, 221.5, 203.5, 225}, 401, 58},
		{"c=2", 2, 0, [4]int{35, 34, 35, 40}, []float64{123, 124, 125, 127}, []float64{217, 212, 214, 222.5}, 349.5, 92},
	} {
		p := dynamoWith(func(d *Dynamo) { d.OverlapCredit, d.CreditDecay, d.PrefillScale = c.credit, c.decay, 2 }, lowestIndex)
		cands := fleet(4)
		held := [4]map[kv.Hash]bool{{}, {}, {}, {}}
		seed := kv.Seed(5)
		hash := func(tokens []uint32) []kv.Hash {
			return seed.Extend(nil, seed.Root(kv.Key{}, 16), tokens, 16, nil)
		}
		for _, h := range hash(in.FirstPrompts[0][:64]) { // the system prompt
			held[0][h] = true
		}
		var placed, prefill, decode, first [4]int
		home := make([]int, len(in.FirstPrompts))
		sticky := 0
		prompts := slices.Clone(in.FirstPrompts)
		for turn := range 3 {
			for s := range prompts {
				if turn > 0 {
					prompts[s] = slices.Concat(prompts[s], in.Appended[turn-1][s])
				}
				h := hash(prompts[s])
				var match [4]int
				for r := range cands {
					for match[r] < len(h) && held[r][h[match[r]]] {
						match[r]++
					}
					cands[r].Overlap.GPU = int32(16 * match[r])
					cands[r].Load = kv.Load{Prefill: 16 * prefill[r], DecodeBlocks: decode[r]} // 2 * half blocks
				}
				r := p.Pick(blocksLong(len(prompts[s])/16), cands)
				placed[r]++
				prefill[r] += max(0, len(h)-match[r])
				decode[r] += len(h)
				for _, x := range h {
					held[r][x] = true
				}
				if turn == 0 {
					home[s] = r
					first[r]++
				} else if home[s] == r {
					sticky++
				}
			}
		}
		makespan := 0.0
		for r := range placed {
			if got := float64(prefill[r]); got != c.prefill[r] {
				t.Errorf("%s: prefill of %d is %v, want %v", c.name, r, got, c.prefill[r])
			}
			if got := float64(decode[r]) / 2; got != c.decode[r] {
				t.Errorf("%s: decode of %d is %v, want %v", c.name, r, got, c.decode[r])
			}
			makespan = max(makespan, float64(prefill[r])+float64(decode[r])/2)
		}
		if placed != c.placed || makespan != c.makespan || sticky != c.sticky {
			t.Errorf("%s: placed %v, makespan %v, sticky %d; want %v, %v, %d", c.name, placed, makespan, sticky, c.placed, c.makespan, c.sticky)
		}
	}
}
