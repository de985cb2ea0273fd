package main

import (
	"fmt"
	"time"
)

// A progress says how far a series is, and guesses from the weights of cells how long
// the rest takes.
type progress struct {
	began        time.Time
	weight       map[*cell]float64 // of those to be played
	total, ended float64
	cells, n     int
	now          func() time.Time
}

func newProgress(all []cell, seeds int, plays func(c *cell) bool) *progress {
	p := &progress{began: time.Now(), weight: map[*cell]float64{}, now: time.Now}
	for i := range all {
		if c := &all[i]; plays(c) {
			p.weight[c] = c.weight(seeds)
			p.total += p.weight[c]
			p.cells++
		}
	}
	return p
}

func (p *progress) over(c *cell) {
	if w, ok := p.weight[c]; ok {
		p.ended += w
		p.n++
	}
}

// line puts the time and what is left in front of what is played next: of c, a part
// is done.
func (p *progress) line(c *cell, part float64, next string) string {
	spent := p.now().Sub(p.began)
	left := ""
	if done := p.ended + part*p.weight[c]; done > 0 && spent > 0 {
		left = fmt.Sprintf(", about %v left", (time.Duration(float64(spent) * (p.total - done) / done)).Round(time.Second))
	}
	return fmt.Sprintf("[%d of %d cells, %v%s] %s", p.n, p.cells, spent.Round(time.Second), left, next)
}
