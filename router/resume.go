package router

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
)

// openWarm reads the file that an earlier run has left, up to the index. nil: there
// is none that can be used. The caller closes what it returns.
func (r *Router) openWarm() (*warm, *os.File, io.Reader) {
	if r.cfg.IndexSnapshot == "" {
		return nil, nil, nil
	}
	file, err := os.Open(r.cfg.IndexSnapshot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	var h warm
	var in io.Reader
	if err == nil {
		in = bufio.NewReaderSize(file, 1<<16)
		h, err = readWarm(in)
	}
	if err != nil {
		r.coldStart(err)
		if file != nil {
			file.Close()
		}
		return nil, nil, nil
	}
	return &h, file, in
}

func (r *Router) coldStart(err error) {
	r.log.Warn("the index starts empty", "file", r.cfg.IndexSnapshot, "err", err)
}

// loadIndex loads what stands behind h, and hands the marks to the followers,
// which are in the table already. It returns the index, nil if it can't be used, and
// the targets of which it knows something.
func (r *Router) loadIndex(h *warm, in io.Reader) (*index.Index, []kv.Target) {
	as := r.renumber(h)
	began := time.Now()
	ix, err := index.Load(in, index.Config{Seed: r.seed, MaxBytes: r.cfg.IndexBytes}, func(t kv.Target) kv.Target {
		if int(t) < len(as) {
			return as[t]
		}
		return kv.NoTarget
	})
	if err != nil {
		r.coldStart(err)
		return nil, nil
	}
	var targets []kv.Target
	keep := map[kv.Target]bool{}
	for _, e := range h.Engines {
		f := r.followerOf(e.URL)
		if f == nil {
			continue
		}
		for i := range e.Marks {
			for _, n := range e.Marks[i].Ranks {
				t := f.target(n)
				if t == kv.NoTarget {
					continue
				}
				keep[t] = true
				if s := ix.TargetStats(t); s.Blocks != e.Ranks[n].Blocks || e.Ranks[n].Waiting {
					e.Marks[i].Seq.Exact, e.Marks[i].Seq.Why = false, "loaded from a snapshot that had not all of it"
				}
			}
		}
		f.replica.Resume(e.Marks, e.Models)
		if e.BlockSize > 0 {
			f.blockSize.Store(int32(e.BlockSize))
			r.table.Update(f.id, func(x *fleet.Replica) { x.BlockSize = e.BlockSize })
		}
	}
	for t := range kv.Target(kv.MaxTargets) {
		if !keep[t] {
			ix.Forget(t)
			continue
		}
		targets = append(targets, t)
	}
	r.log.Info("the index goes on from what the last run believed, where the engines confirm it", "file", r.cfg.IndexSnapshot,
		"written", h.Written, "engines", len(h.Engines), "targets", len(keep), "blocks", ix.Stats().Blocks, "took", time.Since(began).Round(time.Millisecond))
	return ix, targets
}

// renumber gives each replica the ranks that it had, and returns the target that
// each one of the snapshot is now. Targets of replicas that aren't configured any
// more get numbers that nobody has.
func (r *Router) renumber(h *warm) []kv.Target {
	as := make([]kv.Target, kv.MaxTargets)
	var taken [kv.MaxTargets]bool
	for t := range as {
		as[t] = kv.NoTarget
	}
	for _, e := range h.Engines {
		f := r.followerOf(e.URL)
		if f == nil {
			continue
		}
		now, _, err := r.table.SetRanks(f.id, len(e.Ranks))
		if err != nil {
			r.log.Warn("ranks", "replica", f.name, "err", err)
			continue
		}
		for n, k := range e.Ranks {
			if k.Target < kv.MaxTargets && as[k.Target] == kv.NoTarget {
				as[k.Target] = now[n]
				taken[now[n]] = true
			}
		}
	}
	free := kv.Target(kv.MaxTargets - 1)
	for t := range as {
		if as[t] != kv.NoTarget {
			continue
		}
		for taken[free] {
			free--
		}
		as[t], taken[free] = free, true
	}
	return as
}

func (r *Router) followerOf(url string) *follower {
	for _, f := range r.followers {
		if f.row().URL == url {
			return f
		}
	}
	return nil
}
