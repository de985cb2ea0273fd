package receipt

import (
	"context"
	"log/slog"
	"sync"
	"time"
	"unsafe"

	"kvasir/sched"
)

const (
	// maxQueue bounds the memory of receipts that wait for the disk, in bytes. What
	// comes beyond it is dropped and counted: a request never waits.
	maxQueue = 64 << 20
	// flushEvery is how long a receipt waits at most, if the disk takes it.
	flushEvery = time.Second
	// wakeAt is how many waiting receipts are written without waiting that long.
	wakeAt = 1024
	// complainEvery is how often a disk that doesn't take the log is reported.
	complainEvery = time.Minute
)

// A Log takes receipts and writes them, in its own goroutine: Run. Add may be called
// by many.
type Log struct {
	log  *slog.Logger
	enc  *Encoder
	file *file
	wake chan struct{} // 1: there is much to write
	pool sync.Pool     // of *sched.Receipt

	mu    sync.Mutex
	queue []*sched.Receipt // guarded by mu
	spare []*sched.Receipt // guarded by mu: memory of a queue
	bytes int              // guarded by mu: of what waits, and of what is being written
	stats Stats            // guarded by mu

	complained time.Time // by Run only
	silent     uint64    // by Run only: lost since then
}

// Stats counts receipts.
type Stats struct {
	Written uint64
	Slow    uint64 // dropped as the disk was too slow
	Failed  uint64 // lost as it took nothing
	Files   uint64 // begun
}

// Open begins a log in c.File. A log that is there already becomes a rotated one.
func Open(c Config, enc *Encoder, log *slog.Logger) (*Log, error) {
	l := &Log{log: log, enc: enc, file: &file{cfg: c, header: enc.AppendHeader(nil), now: time.Now}, wake: make(chan struct{}, 1)}
	l.pool.New = func() any { return new(sched.Receipt) }
	return l, l.file.open()
}

// Add takes a copy of r. It doesn't wait for the disk.
func (l *Log) Add(r *sched.Receipt) {
	x := l.pool.Get().(*sched.Receipt)
	*x = *r
	n := size(x)
	l.mu.Lock()
	if l.bytes+n > maxQueue {
		l.stats.Slow++
		l.mu.Unlock()
		l.free(x)
		return
	}
	l.bytes += n
	l.queue = append(l.queue, x)
	full := len(l.queue) == wakeAt
	l.mu.Unlock()
	if full {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

func size(r *sched.Receipt) int { return int(unsafe.Sizeof(*r)) + 8*len(r.Blocks.Hashes) }

func (l *Log) free(x *sched.Receipt) {
	x.Blocks.Hashes = nil // not ours
	l.pool.Put(x)
}

// Run writes until ctx ends, then what is there by then, and closes the file.
func (l *Log) Run(ctx context.Context) {
	t := time.NewTicker(flushEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		select {
		case <-t.C:
		case <-l.wake:
		case <-ctx.Done():
		}
		l.flush()
	}
}

// Close writes what has come since Run has ended.
func (l *Log) Close() {
	l.flush()
	l.file.close()
}

// flush writes what waits.
func (l *Log) flush() {
	l.mu.Lock()
	batch := l.queue
	l.queue, l.spare = l.spare, nil
	l.mu.Unlock()
	var text []byte
	for i := 0; i < len(batch); {
		// A piece at a time, so that a full queue needs no text of its own size.
		text = text[:0]
		from, bytes := i, 0
		for ; i < len(batch) && len(text) < 1<<20; i++ {
			text = l.enc.Append(text, batch[i])
			bytes += size(batch[i])
			l.free(batch[i])
		}
		err := l.file.write(text)
		l.wrote(i-from, bytes, err)
	}
	clear(batch)
	l.mu.Lock()
	l.spare = batch[:0]
	l.mu.Unlock()
}

// wrote counts n receipts that the disk has taken, or not.
func (l *Log) wrote(n, bytes int, err error) {
	l.mu.Lock()
	l.bytes -= bytes
	if err == nil {
		l.stats.Written += uint64(n)
	} else {
		l.stats.Failed += uint64(n)
	}
	l.stats.Files = l.file.begun
	l.mu.Unlock()
	if err == nil {
		return
	}
	l.silent += uint64(n)
	if now := time.Now(); now.Sub(l.complained) >= complainEvery {
		l.log.Error("receipts are lost: their file can't be written", "file", l.file.cfg.File, "lost", l.silent, "err", err)
		l.complained, l.silent = now, 0
	}
}

// Stats returns the counts so far.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}
