package router

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"kvasir/engine"
	"kvasir/kv"
	"kvasir/metrics"
)

// A file of Config.IndexSnapshot is a magic number, the length of a JSON text
// (4 bytes, little endian) and its CRC-32C (likewise), the text, which is a
// warm, and the index's own snapshot. The text has the hash seed, so the file is
// readable to its owner only.
const (
	warmMagic   = "kvasirws"
	warmVersion = 1
	maxWarmText = 64 << 20
)

// A warm says whose the blocks of the snapshot are, and where the engines' event
// streams stood when it was written.
type warm struct {
	Version int          `json:"version"`
	Written time.Time    `json:"written"`
	Seed    kv.Seed      `json:"seed,string"` // of all hashes
	Engines []warmEngine `json:"engines"`
}

// A warmEngine is one replica. It is known again by its URL, its ranks by their
// order, its process by what the marks say of its streams.
type warmEngine struct {
	URL       string              `json:"url"`
	BlockSize int                 `json:"block_size"` // as its events say; 0: they haven't
	Ranks     []warmRank          `json:"ranks"`
	Models    []kv.Model          `json:"models"`
	Marks     []engine.StreamMark `json:"streams"`
}

type warmRank struct {
	Target  kv.Target          `json:"target"` // in the snapshot
	Blocks  [kv.NumTiers]int64 `json:"blocks"` // of the snapshot, if it holds all that was known
	Waiting bool               `json:"waiting,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// keepIndex writes what the index believes, and where the streams stand, in one
// step: a file that is there is whole. Engines' events wait meanwhile in their
// rings; requests don't wait.
func (r *Router) keepIndex() {
	if r.cfg.IndexSnapshot == "" {
		return
	}
	began := time.Now()
	size, err := writeWhole(r.cfg.IndexSnapshot, r.writeIndex)
	r.keptMu.Lock()
	if err != nil {
		r.kept.Failed++
	} else {
		r.kept.Last, r.kept.Bytes, r.kept.Took = time.Now(), size, time.Since(began)
	}
	r.keptMu.Unlock()
	if err != nil {
		r.log.Warn("what the index believes can't be kept", "file", r.cfg.IndexSnapshot, "err", err)
		return
	}
	r.log.Info("kept what the index believes", "file", r.cfg.IndexSnapshot, "bytes", size, "took", time.Since(began).Round(time.Millisecond))
}

// keptStats returns what became of it, nil if it isn't configured.
func (r *Router) keptStats() func() metrics.Kept {
	if r.cfg.IndexSnapshot == "" {
		return nil
	}
	return func() metrics.Kept {
		r.keptMu.Lock()
		defer r.keptMu.Unlock()
		return r.kept
	}
}

// keepIndexEvery does so again and again, for a router that is killed, if that is
// configured.
func (r *Router) keepIndexEvery(ctx context.Context) {
	if r.cfg.IndexSnapshot == "" || r.cfg.IndexSnapshotEvery == 0 {
		return
	}
	t := time.NewTicker(r.cfg.IndexSnapshotEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			r.keepIndex()
		case <-ctx.Done():
			return
		}
	}
}

// writeWhole replaces the file called name by what write writes, or leaves it.
func writeWhole(name string, write func(io.Writer) error) (size int64, err error) {
	tmp := name + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, name)
	}
	if err != nil {
		os.Remove(tmp)
	}
	return size, err
}

func (r *Router) writeIndex(w io.Writer) error {
	r.layout.Lock() // no target changes hands meanwhile
	defer r.layout.Unlock()
	h := warm{Version: warmVersion, Written: time.Now(), Seed: r.seed}
	for _, f := range r.followers {
		marks, release := f.replica.Hold()
		defer release()
		row := f.row()
		e := warmEngine{URL: row.URL, BlockSize: int(f.blockSize.Load()), Models: f.replica.Info().Models, Marks: marks}
		for _, t := range row.Targets {
			s := r.index.TargetStats(t)
			e.Ranks = append(e.Ranks, warmRank{Target: t, Blocks: s.Blocks, Waiting: s.Orphans > 0})
		}
		h.Engines = append(h.Engines, e)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, warmMagic); err != nil {
		return err
	}
	if err := writeText(w, text); err != nil {
		return err
	}
	return r.index.Snapshot(w)
}

func writeText(w io.Writer, text []byte) error {
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(text, castagnoli))
	_, err := w.Write(append(head, text...))
	return err
}

// readWarm reads what stands before the index.
func readWarm(in io.Reader) (h warm, err error) {
	var head [len(warmMagic) + 8]byte
	if _, err := io.ReadFull(in, head[:]); err != nil || string(head[:len(warmMagic)]) != warmMagic {
		return h, fmt.Errorf("not a snapshot of a router: begins with %q, want %q", head[:len(warmMagic)], warmMagic)
	}
	n := binary.LittleEndian.Uint32(head[len(warmMagic):])
	if n > maxWarmText {
		return h, fmt.Errorf("a text of %d bytes: want at most %d", n, maxWarmText)
	}
	text, err := io.ReadAll(io.LimitReader(in, int64(n)))
	switch {
	case err != nil:
		return h, err
	case len(text) < int(n):
		return h, fmt.Errorf("ends after %d of %d bytes of text", len(text), n)
	case crc32.Checksum(text, castagnoli) != binary.LittleEndian.Uint32(head[len(warmMagic)+4:]):
		return h, errors.New("the text's checksum doesn't fit")
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, err
	}
	if h.Version != warmVersion {
		return h, fmt.Errorf("version %d: this program reads version %d", h.Version, warmVersion)
	}
	for _, e := range h.Engines {
		if err := e.check(); err != nil {
			return h, fmt.Errorf("engine %q: %w", e.URL, err)
		}
	}
	return h, nil
}

func (e *warmEngine) check() error {
	if len(e.Ranks) < 1 || len(e.Ranks) > kv.MaxTargets {
		return fmt.Errorf("%d ranks: want 1 to %d", len(e.Ranks), kv.MaxTargets)
	}
	if e.BlockSize < 0 || e.BlockSize > 1<<20 {
		return fmt.Errorf("block size %d: want 0 to %d", e.BlockSize, 1<<20)
	}
	for _, k := range e.Marks {
		if len(k.Ranks) == 0 || len(k.Ranks) != len(k.Spoken) {
			return fmt.Errorf("stream %d: %d ranks that the engine calls %v", k.Source.Rank, len(k.Ranks), k.Spoken)
		}
		for _, n := range k.Ranks {
			if n < 0 || n >= len(e.Ranks) {
				return fmt.Errorf("stream %d: rank %d: want 0 to %d", k.Source.Rank, n, len(e.Ranks)-1)
			}
		}
	}
	return nil
}
