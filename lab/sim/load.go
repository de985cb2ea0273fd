package sim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"

	"kvasir/kv"
	"kvasir/lab/trace"
)

// An Input says which file to play and how.
type Input struct {
	File   string   // a trace, a cell, a receipt log, rl_rollouts.json; plain or gzip
	More   []string // further files of the same receipt log
	Starts string   // closed loop: file of start times (claude_code_starts.json); "" makes them
	Speed  float64  // open loop: factor on the rate; 0: 1
	Limit  int      // open loop: first requests only; closed loop: requests issued; 0: all, or 50 per user
	// Ticks says what to do with rows of a Mooncake trace that share a timestamp:
	// "spread" them evenly over the tick, "keep" them together, or "" decide by
	// how many there are (docs/mock.md, "Workloads").
	Ticks    string
	Replicas int    // closed loop: fleet that users are scaled to
	Users    int    // closed loop: 0: 6 per replica
	Seed     uint64 // closed loop: order of sessions and starts; 0: 3
	NoReuse  bool   // every block id made unique: the prefix-free control
	SkipBad  bool
}

// Loaded is what Load tells beside the workload.
type Loaded struct {
	Skipped  int   // bad lines
	FirstBad error // of the first
}

// Load reads a workload.
func Load(in Input) (*Workload, Loaded, error) {
	var told Loaded
	if in.Speed == 0 {
		in.Speed = 1
	}
	if !(in.Speed > 0 && in.Speed < 1e9) {
		return nil, told, fmt.Errorf("sim: speed is %v, must be positive: it multiplies the rate of arrivals", in.Speed)
	}
	if in.Limit < 0 || in.Users < 0 {
		return nil, told, fmt.Errorf("sim: limit is %d and users %d, must not be negative", in.Limit, in.Users)
	}
	f, err := os.Open(in.File)
	if err != nil {
		return nil, told, err
	}
	defer f.Close()
	head := bufio.NewReaderSize(f, 1<<12)
	if first, _ := head.Peek(1 << 12); bytes.Contains(first, []byte(`"rollouts_per_step"`)) {
		r, err := readRollouts(head, in.File)
		if err != nil {
			return nil, told, err
		}
		return rolloutWorkload(baseName(in.File), r), told, nil
	}
	r, err := trace.NewReader(head, in.File, trace.Options{SkipBad: in.SkipBad})
	if err != nil {
		return nil, told, err
	}
	if r.Format() == trace.Receipts {
		w, told, err := recordedWorkload(append([]string{in.File}, in.More...), in)
		if err == nil && in.NoReuse {
			w.unshare()
		}
		return w, told, err
	}
	if len(in.More) > 0 {
		return nil, told, fmt.Errorf("%s and %s: only receipt logs can be played together", in.File, in.More[0])
	}
	w, err := read(r, in)
	told.Skipped, told.FirstBad = r.Skipped()
	if err != nil {
		return nil, told, err
	}
	return w, told, nil
}

// unshare makes every block unique.
func (w *Workload) unshare() {
	w.name += " no reuse"
	w.recorded = nil // nothing that was decided can be compared
	fresh := kv.Hash(0)
	for i := range w.open {
		b := make([]kv.Hash, len(w.open[i].blocks))
		for k := range b {
			b[k] = fresh
			fresh++
		}
		w.open[i].blocks = b
	}
}

func read(r *trace.Reader, in Input) (*Workload, error) {
	switch r.Format() {
	case trace.Turns:
		list, size, err := readChats(r)
		if err != nil {
			return nil, err
		}
		return crowdWorkload(list, size, in)
	case trace.Weka:
		list, err := readWeka(r, in.Seed)
		if err != nil {
			return nil, err
		}
		return crowdWorkload(list, trace.BlockSize, in)
	}
	w := &Workload{name: baseName(in.File), speed: in.Speed}
	if in.Speed != 1 {
		w.name += " " + strconv.FormatFloat(in.Speed, 'g', -1, 64) + "x"
	}
	var err error
	if w.open, w.size, err = readOpen(r, in); err != nil {
		if line := (*trace.LineError)(nil); errors.As(err, &line) { // it names the file
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", in.File, err)
	}
	if in.NoReuse {
		w.unshare()
	}
	return w, nil
}

// baseName is the file's name without folder and endings.
func baseName(file string) string {
	name := filepath.Base(file)
	for ext := filepath.Ext(name); ext != "" && ext != name; ext = filepath.Ext(name) {
		name = name[:len(name)-len(ext)]
	}
	return name
}

// readOpen reads an open-loop trace, in order of time.
func readOpen(r *trace.Reader, in Input) (list []openArrival, size int, err error) {
	named := false
	convs := map[string]int32{}
	for {
		q, err := r.NextRequest()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		if size == 0 {
			size = q.BlockSize
		}
		if q.BlockSize != size {
			return nil, 0, fmt.Errorf("request %d has blocks of %d tokens, those before have %d: one size per input", q.ID, q.BlockSize, size)
		}
		a := openArrival{at: q.At, prompt: q.Input, out: q.Output, blocks: hashes(q.Blocks)}
		if q.Session != "" {
			named = true
			id, ok := convs[q.Session]
			if !ok {
				id = int32(len(convs))
				convs[q.Session] = id
			}
			a.conv, a.session = id, sessionKey(q.Session)
		} else {
			a.conv = -1
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, 0, errors.New("the trace has no usable request")
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].at < list[j].at })
	if r.Format() == trace.Mooncake && !named {
		inferSessions(list)
	}
	if r.Format() == trace.Mooncake {
		if err := spreadTicks(list, in.Ticks); err != nil {
			return nil, 0, err
		}
	}
	if in.Limit > 0 {
		list = list[:min(in.Limit, len(list))]
	}
	next := int32(len(convs))
	for i := range list {
		if list[i].conv < 0 { // no session: one of its own
			list[i].conv, list[i].session = next, h64(uint64(i)<<1|1)
			next++
		}
	}
	return list, size, nil
}

func hashes(ids []uint64) []kv.Hash {
	out := make([]kv.Hash, len(ids))
	for i, id := range ids {
		out[i] = kv.Hash(id)
	}
	return out
}

// sessionKey is the number that a session's name hashes to: that of the name in
// single quotes, which is how the reference simulator came by its keys from the
// cell files.
func sessionKey(name string) uint64 { return fnvText("'" + name + "'") }

// fnvText is FNV-1a with the offset that the reference had (docs/mock.md, "Workloads"),
// which is not the usual one.
func fnvText(s string) uint64 {
	h := uint64(1469598103934665603)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// inferSessions finds the sessions of a trace that names none (docs/mock.md,
// "Workloads"): a request joins the session of the last earlier one that contained its
// deepest block beyond those with more than 8 different successors.
func inferSessions(list []openArrival) {
	kids := map[kv.Hash]map[kv.Hash]bool{}
	for i := range list {
		b := list[i].blocks
		for k := 1; k < len(b); k++ {
			s := kids[b[k-1]]
			if s == nil {
				s = map[kv.Hash]bool{}
				kids[b[k-1]] = s
			}
			s[b[k]] = true
		}
	}
	owner := map[kv.Hash]int32{}
	next := int32(0)
	for i := range list {
		b := list[i].blocks
		pop := 0
		for k := len(b) - 1; k >= 0; k-- {
			if len(kids[b[k]]) > 8 {
				pop = k + 1
				break
			}
		}
		id := int32(-1)
		for k := len(b) - 1; k >= pop; k-- {
			if o, ok := owner[b[k]]; ok {
				id = o
				break
			}
		}
		if id < 0 {
			id = next
			next++
		}
		for _, h := range b[pop:] {
			owner[h] = id
		}
		list[i].conv, list[i].session = id, uint64(id)
	}
}

// spreadTicks spreads rows that share a timestamp evenly up to the next one, at
// most 3.1 s (docs/mock.md, "Workloads").
func spreadTicks(list []openArrival, how string) error {
	distinct := 1
	for i := 1; i < len(list); i++ {
		if list[i].at != list[i-1].at {
			distinct++
		}
	}
	switch how {
	case "keep":
		return nil
	case "":
		if distinct*2 > len(list) {
			return nil
		}
	case "spread":
	default:
		return fmt.Errorf("sim: ticks is %q, must be spread, keep or empty", how)
	}
	for i := 0; i < len(list); {
		j := i
		for j < len(list) && list[j].at == list[i].at {
			j++
		}
		gap := 3.1
		if j < len(list) {
			gap = min(gap, list[j].at-list[i].at)
		}
		from := list[i].at
		for k := i; k < j; k++ {
			list[k].at = from + float64(gap*float64(k-i))/float64(j-i)
		}
		i = j
	}
	return nil
}

// crowdWorkload plays sessions closed loop.
func crowdWorkload(list []chat, size int, in Input) (*Workload, error) {
	replicas := in.Replicas
	if replicas < 1 {
		return nil, fmt.Errorf("sim: replicas is %d: a closed loop needs at least 1, its users are scaled to them", replicas)
	}
	seed := in.Seed
	if seed == 0 {
		seed = 3
	}
	crowd := Crowd{Replicas: replicas, Users: in.Users, Requests: in.Limit}
	if in.Starts != "" {
		c, err := readStarts(in.Starts, replicas)
		if err != nil {
			return nil, err
		}
		crowd = c
		if in.Limit > 0 {
			crowd.Requests = in.Limit
		}
	} else {
		if crowd.Users == 0 {
			crowd.Users = 6 * replicas
		}
		if crowd.Requests == 0 {
			crowd.Requests = 50 * crowd.Users
		}
		dice := NewPython(seed)
		for u := range crowd.Users {
			crowd.Start = append(crowd.Start, float64(20*u)/float64(crowd.Users)+float64(.1*dice.Float64()))
		}
	}
	return &Workload{
		name: fmt.Sprintf("%s %d users", baseName(in.File), len(crowd.Start)), size: size, speed: 1,
		total: crowd.Requests, crowdReplicas: replicas, chats: list,
		closed: func(paged bool) source {
			return &crowdSource{chats: list, crowd: crowd, pause: 1, paged: paged, size: size}
		},
		chains: func(yield func([]kv.Hash)) {
			for _, c := range list {
				for i := range c.turns {
					yield(c.turns[i].blocks)
				}
			}
		},
	}, nil
}

// readStarts reads the start times for a fleet of the given size.
func readStarts(file string, replicas int) (Crowd, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return Crowd{}, err
	}
	if bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return Crowd{}, fmt.Errorf("%s: %w", file, err)
		}
		if raw, err = io.ReadAll(io.LimitReader(z, 1<<26)); err != nil {
			return Crowd{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	var list []Crowd
	if err := json.Unmarshal(raw, &list); err != nil {
		return Crowd{}, fmt.Errorf("%s: %w", file, err)
	}
	var have []int
	for _, c := range list {
		if c.Replicas != replicas {
			have = append(have, c.Replicas)
			continue
		}
		if len(c.Start) == 0 || c.Requests < 1 || !slices.IsSorted(c.Start) || c.Start[0] < 0 {
			return c, fmt.Errorf("%s: fleet of %d: want start times in ascending order and a positive number of requests", file, replicas)
		}
		return c, nil
	}
	return Crowd{}, fmt.Errorf("%s: no start times for %d replicas, only for %v", file, replicas, have)
}
