package main

import (
	"fmt"
	"path/filepath"

	"kvasir/lab/sim"
)

// swept are the policies of the sweeps.
var swept = []string{"round_robin", "least_load", "session", "sglang_cache_aware:library", "llmd_precise", "dynamo", "dynamo:prefill8", "lmetric", "marginal", "auto", pool}

// sweepCells are docs/mock.md, "Sweeps": load on 8 replicas, and concurrency of agents
// on 4 in three orders of sessions. Full load is in the main cells already.
func sweepCells(open func(file string, speed float64) sim.Input, cells string) (list []cell) {
	for _, x := range []struct {
		name string
		full float64
	}{{"conv", 1.8}, {"tool", 2.2}, {"synth", 1.2}} {
		for _, part := range []float64{.25, .5, .75} {
			list = append(list, cell{key: fmt.Sprintf("load-%s-%g", x.name, 100*part), group: loads, title: fmt.Sprintf("%s %.3gx (%g %%)", x.name, x.full*part, 100*part),
				input: open(x.name, x.full*part), replicas: 8, arms: swept, seeds: 1})
		}
	}
	for _, users := range []int{8, 16, 24, 32, 40} {
		for _, order := range []uint64{3, 4, 5} {
			list = append(list, cell{key: fmt.Sprintf("users-%d-order%d", users, order), group: crowds, title: fmt.Sprintf("%d users, order %d", users, order),
				input:    sim.Input{File: filepath.Join(cells, fmt.Sprintf("claude_code_seed%d.jsonl.gz", order)), Replicas: 4, Users: users, Limit: 1200, Seed: order},
				replicas: 4, arms: swept, seeds: 1})
		}
	}
	return list
}

// names are policies as tables show them.
func names(policies []string) (list []string) {
	for _, p := range policies {
		list = append(list, code(p))
	}
	return list
}
