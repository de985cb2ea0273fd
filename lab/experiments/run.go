package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"kvasir/lab/sim"
)

// A keeper remembers runs on disk, so that an interrupted series goes on where it
// was. Runs are deterministic; whoever changes the code empties the folder.
type keeper struct {
	dir  string // "": nothing is kept
	runs []sim.Result
	path string
}

func (k *keeper) open(c *cell) error {
	k.runs, k.path = nil, ""
	if k.dir == "" {
		return nil
	}
	k.path = filepath.Join(k.dir, c.key+".json")
	raw, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &k.runs)
	}
	return err
}

func (k *keeper) find(policy string, seed uint64) *sim.Result {
	for i := range k.runs {
		if r := &k.runs[i]; r.Policy == policy && r.Seed == seed {
			return r
		}
	}
	return nil
}

func (k *keeper) add(runs ...sim.Result) error {
	k.runs = append(k.runs, runs...)
	if k.path == "" {
		return nil
	}
	raw, err := json.Marshal(k.runs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.path+".new", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(k.path+".new", k.path)
}

// arms of the cell, with the twins of the reference's rows.
func (c *cell) policies() []string {
	list := slices.Clone(c.arms)
	if c.ref != (refKey{}) {
		for _, arms := range twins {
			for _, a := range arms {
				if !slices.Contains(list, a) {
					list = append(list, a)
				}
			}
		}
		slices.Sort(list[len(c.arms):])
	}
	return list
}

// repeats picks the policies that are played with more seeds: those that came out
// otherwise under seed 2 than under 1, and that aren't hopeless. Twins are compared
// with the reference at seed 1 only.
func (c *cell) repeats(k *keeper, seed uint64) (list []string) {
	best := 0.0
	for _, p := range c.arms {
		if r := k.find(p, 1); r != nil && (best == 0 || r.TTFT.Mean < best) {
			best = r.TTFT.Mean
		}
	}
	for _, p := range c.arms {
		one := k.find(p, 1)
		if one == nil || one.TTFT.Mean > 8*best {
			continue
		}
		if two := k.find(p, 2); seed > 2 && (two == nil || reflect.DeepEqual(one.Share, two.Share) && one.TTFT == two.TTFT) {
			continue
		}
		list = append(list, p)
	}
	return list
}

// weight is roughly what the cell costs to play, in requests.
func (c *cell) weight(seeds int) float64 {
	requests := 6000.0
	switch {
	case c.input.Replicas > 0: // closed loop
		requests = 300 * float64(c.input.Replicas) * 4 // long prompts
	case c.group == rollouts:
		requests = 2560
	}
	if c.group == faulty { // late events are copied
		requests *= 2
	}
	// More targets cost more per decision.
	return requests * c.expected(seeds) * (.6 + float64(c.replicas)/20)
}

// expected is roughly how many runs the cell will have.
//
// A part of the policies draw ties, and are played with every seed.
func (c *cell) expected(seeds int) float64 {
	return float64(len(c.policies())) * (1 + .5*float64(min(seeds, c.seeds)-1))
}

// play runs what is missing of the cell, up to seeds; with missing false it only
// returns what is kept. say hears what share of the cell is done and what comes next.
func (c *cell) play(ctx context.Context, k *keeper, seeds int, missing bool, say func(part float64, next string)) ([]sim.Result, error) {
	if err := k.open(c); err != nil {
		return nil, fmt.Errorf("%s: %w", c.key, err)
	}
	var w *sim.Workload
	for seed := uint64(1); missing && seed <= uint64(min(seeds, c.seeds)); seed++ {
		todo := c.policies()
		if seed > 1 {
			todo = c.repeats(k, seed)
		}
		todo = slices.DeleteFunc(todo, func(p string) bool { return k.find(p, seed) != nil })
		if len(todo) == 0 {
			continue
		}
		if w == nil {
			var err error
			if w, err = c.workload(); err != nil {
				return nil, err
			}
		}
		for len(todo) > 0 { // a few at a time, so that little is lost by an interruption
			n := min(8, len(todo))
			say(min(1, float64(len(k.runs))/c.expected(seeds)), fmt.Sprintf("%s, seed %d: %d policies", c.key, seed, len(todo)))
			rep, err := sim.Run(ctx, sim.Config{Workload: w, Policies: todo[:n], Replicas: c.replicas, Profile: c.profile, KVTokens: c.kv, Seeds: []uint64{seed},
				Faults: c.faults, Hints: c.hints, Curves: c.curves && seed == 1})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.key, err)
			}
			if rep.Stopped {
				return nil, context.Canceled
			}
			if err := k.add(rep.Runs...); err != nil {
				return nil, err
			}
			todo = todo[n:]
		}
	}
	return k.runs, nil
}

func (c *cell) workload() (*sim.Workload, error) {
	if c.gen != "" {
		return sim.Generate(c.gen, c.replicas)
	}
	w, _, err := sim.Load(c.input)
	return w, err
}
