package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"

	"kvasir/lab/mock"
	"kvasir/lab/sim"
	"kvasir/lab/trace"
)

// requests are what is played, in order of time.
type requests []trace.Request

func load(o options) (list requests, err error) {
	r, err := trace.Open(o.cell, trace.Options{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for len(list) < o.limit {
		q, err := r.NextRequest()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		list = append(list, q)
	}
	if len(list) == 0 {
		return nil, errors.New(o.cell + " has no requests")
	}
	return list, nil
}

// late returns the requests as they might reach a router over a network: each late by
// an exponential time, mean in seconds of the trace, so that some change places.
func (list requests) late(mean float64, dice *rand.Rand) requests {
	out := slices.Clone(list)
	for i := range out {
		out[i].At += mean * dice.ExpFloat64()
	}
	slices.SortStableFunc(out, func(a, b trace.Request) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	return out
}

// write writes the requests as a cell.
func (list requests) write(w io.Writer) error {
	buf := bufio.NewWriter(w)
	out := json.NewEncoder(buf)
	for i := range list {
		q := &list[i]
		err := out.Encode(struct {
			ID      int64    `json:"id"`
			At      float64  `json:"t"`
			Input   int      `json:"input"`
			Output  int      `json:"output"`
			Session string   `json:"session"`
			Blocks  []uint64 `json:"blocks"`
		}{q.ID, q.At, q.Input, q.Output, q.Session, q.Blocks})
		if err != nil {
			return err
		}
	}
	return buf.Flush()
}

// simulate plays the requests in virtual time, with vLLM's paging, as the engines on
// sockets do. Seed 0: nothing is late; else it draws the lateness, and ties.
func simulate(ctx context.Context, o options, p mock.Profile, list requests, seed uint64) (sim.Result, error) {
	var faults sim.Faults
	if seed > 0 {
		list = list.late(o.late.Seconds()*o.speed/o.slow, rand.New(rand.NewPCG(seed, 1)))
		faults.EventJitter = o.late.Seconds()
		faults.Gauges = o.gauges.Seconds()
	}
	f, err := os.CreateTemp("", "agree-*.jsonl")
	if err != nil {
		return sim.Result{}, err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(list.write(f), f.Close()); err != nil {
		return sim.Result{}, err
	}
	w, _, err := sim.Load(sim.Input{File: f.Name(), Speed: o.speed / o.slow})
	if err != nil {
		return sim.Result{}, err
	}
	rep, err := sim.Run(ctx, sim.Config{Workload: w, Policies: []string{o.policy}, Replicas: o.replicas, Profile: p, Engine: "paged", Seeds: []uint64{seed + 1}, Faults: faults,
		Hints: sim.Hints{MaxOutput: true}}) // the client sends max_tokens
	if err != nil || rep.Stopped {
		return sim.Result{}, errors.Join(err, ctx.Err())
	}
	return rep.Runs[0], nil
}
