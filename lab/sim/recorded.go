package sim

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"time"

	"kvasir/lab/trace"
	"kvasir/receipt"
)

// Recorded is what a receipt log says of the run that it was written in, and what it
// can't say.
type Recorded struct {
	Policies []string `json:"policies"`
	Replicas int      `json:"replicas"` // targets: a data-parallel rank counts as one
	Runs     int      `json:"runs"`     // of the router; nothing can be compared over their ends
	Requests int      `json:"requests"` // that are played
	TTFT     float64  `json:"ttft_s"`   // mean, of those that had a first token
	E2E      float64  `json:"e2e_s"`    // mean

	Missing   uint64  `json:"missing"`    // decisions by number that aren't in the log: dropped, open at its end, or before its first file
	Failed    int     `json:"failed"`     // attempts that engines failed: not played, another one followed or the request was lost
	Unknown   int     `json:"unknown"`    // requests of unknown length: not played
	NoBlocks  int     `json:"no_blocks"`  // played as prompts that share nothing, as their tokens were not known
	Cancelled int     `json:"cancelled"`  // played up to where their clients left
	Early     float64 `json:"early_hits"` // share of the served cached tokens that no earlier receipt explains: caches were filled before, by others, or by output

	targets []int // simulated replica i stands for targets[i]
}

// said is what a client told the router beside the prompt.
type said struct {
	maxOutput, expected, priority int
	nextTurn                      time.Duration
}

// A played is one receipt with the run that it is of.
type played struct {
	receipt.Line
	run string
	at  int64 // ns since 1970
}

// recordedWorkload reads the files of a receipt log, in any order, as one workload.
func recordedWorkload(files []string, in Input) (*Workload, Loaded, error) {
	var told Loaded
	var list []played
	for _, name := range files {
		r, err := trace.Open(name, trace.Options{SkipBad: in.SkipBad})
		if err != nil {
			return nil, told, err
		}
		if r.Format() != trace.Receipts {
			r.Close()
			return nil, told, fmt.Errorf("%s is no receipt log but %s", name, r.Format())
		}
		for {
			var v receipt.Line
			if v, err = r.NextReceipt(); err != nil {
				break
			}
			run, start := r.Run()
			list = append(list, played{v, run, start.UnixNano() + int64(math.Round(v.At*1e9))})
		}
		n, first := r.Skipped()
		if told.Skipped += n; told.FirstBad == nil {
			told.FirstBad = first
		}
		if r.Close(); err != io.EOF {
			return nil, told, err
		}
	}
	sort.SliceStable(list, func(i, j int) bool {
		return list[i].at < list[j].at || list[i].at == list[j].at && list[i].ID < list[j].ID
	})
	w := &Workload{name: baseName(files[0]), speed: in.Speed, recorded: new(Recorded)}
	if in.Speed != 1 {
		w.name += fmt.Sprintf(" %gx", in.Speed)
	}
	if err := w.record(list, in); err != nil {
		return nil, told, fmt.Errorf("%s: %w", files[0], err)
	}
	return w, told, nil
}

// record makes arrivals of receipts, and counts what can't be made of them.
func (w *Workload) record(list []played, in Input) error {
	r := w.recorded
	w.targetsOf(list)
	runs := map[string][]uint64{}
	policies := map[string]bool{}
	convs := map[[2]string]int32{}
	first := int64(0)
	var ttft, e2e []float64
	var kept []played
	for i := range list {
		x := &list[i]
		runs[x.run] = append(runs[x.run], x.ID)
		policies[x.Policy] = true
		q, ok := trace.ReceiptRequest(&x.Line)
		switch {
		case x.Outcome == "failed":
			r.Failed++
			continue
		case !ok:
			r.Unknown++
			continue
		case in.Limit > 0 && len(w.open) >= in.Limit:
			continue
		case len(w.open) == 0:
			first = x.at
		}
		if x.BlockSize > 0 {
			if w.size == 0 {
				w.size = x.BlockSize
			}
			if w.size != x.BlockSize {
				return fmt.Errorf("decision %d has blocks of %d tokens, those before have %d: engines of different block sizes can't be played together", x.ID, x.BlockSize, w.size)
			}
		}
		a := openArrival{at: float64(x.at-first) / 1e9, prompt: q.Input, out: q.Output, blocks: hashes(q.Blocks),
			went: slices.Index(r.targets, x.Target), said: said{x.MaxOutput, x.Expected, x.Priority, time.Duration(math.Round(x.NextTurn * 1e9))}}
		name := [2]string{x.run, x.Session}
		if x.Session == "" {
			name[1] = fmt.Sprintf("%d", x.ID) // no session: one of its own
			a.session = h64(uint64(i)<<1 | 1)
		} else {
			a.session = sessionKey(x.Session)
		}
		id, ok := convs[name]
		if !ok {
			id = int32(len(convs))
			convs[name] = id
		}
		a.conv = id
		w.open = append(w.open, a)
		kept = append(kept, *x)
		if x.Tokens == 0 {
			r.NoBlocks++
		}
		if x.Outcome == "cancelled" {
			r.Cancelled++
		}
		if x.First > 0 {
			ttft = append(ttft, x.First)
		}
		e2e = append(e2e, x.Took)
	}
	if len(w.open) == 0 {
		return errors.New("the log has no receipt that can be played")
	}
	if w.size == 0 {
		w.size = trace.BlockSize
	}
	for p := range policies {
		r.Policies = append(r.Policies, p)
	}
	slices.Sort(r.Policies)
	for _, ids := range runs {
		slices.Sort(ids)
		ids = slices.Compact(ids)
		r.Missing += ids[len(ids)-1] - uint64(len(ids)) // numbers begin at 1
	}
	r.Runs, r.Requests, r.TTFT, r.E2E, r.Early = len(runs), len(w.open), spread(ttft).Mean, spread(e2e).Mean, early(kept)
	return nil
}

// targetsOf finds the targets that there were, in order of their numbers.
func (w *Workload) targetsOf(list []played) {
	r := w.recorded
	seen := map[int]bool{}
	most := 0
	for i := range list {
		seen[list[i].Target] = true
		for k := range list[i].Candidates {
			seen[list[i].Candidates[k].Target] = true
		}
		most = max(most, list[i].Considered)
	}
	for t := range seen {
		r.targets = append(r.targets, t)
	}
	slices.Sort(r.targets)
	r.Replicas = max(len(r.targets), most)
}

// early returns the share of the cached tokens served that no earlier receipt of
// the same target explains.
func early(list []played) float64 {
	type held struct {
		target int
		block  uint64
	}
	seen := map[held]bool{}
	cached, unexplained := 0, 0
	for i := range list {
		x := &list[i]
		n := 0
		for n < len(x.Blocks) && seen[held{x.Target, x.Blocks[n]}] {
			n++
		}
		if x.ServedCached != nil {
			cached += *x.ServedCached
			unexplained += max(0, *x.ServedCached-n*x.BlockSize)
		}
		for _, b := range x.Blocks[n:] {
			seen[held{x.Target, b}] = true
		}
	}
	if cached == 0 {
		return 0
	}
	return float64(unexplained) / float64(cached)
}

// Recorded returns what a receipt log says of itself, nil for other workloads.
func (w *Workload) Recorded() *Recorded { return w.recorded }
