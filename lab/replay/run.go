package replay

import (
	"context"
	"sync"
	"time"

	"kvasir/lab/trace"
)

// A Progress is told after each request that has ended.
type Progress func(done, total int, s *Sample)

// Run plays the workload and returns the report. If ctx ends before, what is
// known so far is in the report, and the error is ctx's.
func Run(ctx context.Context, cfg Config, w Workload, progress Progress) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if w.size(cfg.Limit) == 0 {
		return nil, errEmpty
	}
	c, err := newClient(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.http.CloseIdleConnections()
	p := &player{client: c, w: &w, total: w.size(cfg.Limit), progress: progress}
	c.start = time.Now()
	if len(w.Sessions) > 0 {
		p.closed(ctx)
	} else {
		p.open(ctx)
	}
	rep := newReport(c.model, p.samples, time.Since(c.start))
	rep.Left = p.left
	return rep, ctx.Err()
}

// A player plays one workload.
type player struct {
	*client
	w        *Workload
	total    int
	progress Progress

	mu      sync.Mutex
	samples []Sample // guarded by mu
	issued  int      // guarded by mu
	left    int      // guarded by mu; requests left out because of their length
	next    int      // guarded by mu; session
}

func (p *player) done(ctx context.Context, s Sample) {
	if ctx.Err() != nil && s.Err != "" {
		return // cut off by the end of the run, no fault of the endpoint's
	}
	p.mu.Lock()
	p.samples = append(p.samples, s)
	n := len(p.samples)
	if p.progress != nil {
		p.progress(n, p.total, &s)
	}
	p.mu.Unlock()
}

// open plays requests at their times.
func (p *player) open(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	origin := p.w.Requests[0].At
	for i := range p.w.Requests[:min(p.total, len(p.w.Requests))] {
		q := &p.w.Requests[i]
		x, ok := p.scaled(q.Blocks, q.Input, q.Output, q.BlockSize)
		if !ok {
			p.leave(1)
			continue
		}
		x.own, x.session = uint64(q.ID), q.Session
		due := time.Duration((q.At - origin) / p.cfg.Speed * float64(time.Second))
		timer.Reset(time.Until(p.start.Add(due)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		wg.Go(func() { p.done(ctx, p.play(ctx, x, due)) })
	}
}

// closed keeps Users sessions going.
func (p *player) closed(ctx context.Context) {
	var wg sync.WaitGroup
	for range min(p.cfg.Users, len(p.w.Sessions)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				s := p.take()
				if s == nil {
					return
				}
				p.session(ctx, s)
			}
		})
	}
	wg.Wait()
}

// take returns the next session, nil if all are taken or the limit is reached.
func (p *player) take() *trace.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == len(p.w.Sessions) || p.issued >= p.total {
		return nil
	}
	p.next++
	return &p.w.Sessions[p.next-1]
}

// issue counts a request that is about to be sent; false beyond the limit.
func (p *player) issue() (own int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.issued >= p.total {
		return 0, false
	}
	p.issued++
	return p.issued, true
}

func (p *player) leave(n int) {
	p.mu.Lock()
	p.left += n
	p.total -= n
	p.mu.Unlock()
}

// think returns how long a session pauses before the turn.
func (p *player) think(t *trace.Turn) time.Duration {
	d := time.Duration(t.Think * float64(time.Second))
	if p.cfg.MaxThink > 0 {
		d = min(d, p.cfg.MaxThink)
	}
	return d
}

// session plays one session, turn by turn. It ends early at a turn that fails or
// is too long: what follows would build on an answer that never came.
func (p *player) session(ctx context.Context, s *trace.Session) {
	for i := range s.Turns {
		turn := &s.Turns[i]
		x, ok := p.scaled(turn.Blocks, turn.Input, turn.Output, s.BlockSize)
		if !ok {
			p.leave(len(s.Turns) - i)
			return
		}
		if think := p.think(turn); i > 0 && think > 0 {
			select {
			case <-time.After(think):
			case <-ctx.Done():
				return
			}
		}
		own, ok := p.issue()
		if !ok || ctx.Err() != nil {
			return
		}
		x.own, x.session = uint64(own), s.ID
		if p.cfg.NextTurn && i+1 < len(s.Turns) {
			x.next = p.think(&s.Turns[i+1])
		}
		sample := p.play(ctx, x, time.Since(p.start))
		p.done(ctx, sample)
		if ctx.Err() != nil {
			return // interrupted: what follows was not left out, it was never reached
		}
		if sample.Err != "" {
			p.leave(len(s.Turns) - i - 1)
			return
		}
	}
}
