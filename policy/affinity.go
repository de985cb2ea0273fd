package policy

// PureAffinity configures `pure_affinity`.
type PureAffinity struct {
	// Predicted counts dispatched blocks as held.
	Predicted bool `yaml:"predicted"`
	// Ties go to the lowest index, or to the least load and then at random.
	Ties string `yaml:"ties" default:"load" oneof:"lowest|load"`
}

// pureAffinity goes to the longest match, whatever the load. It is here to be
// compared with: one shared system prompt sends all traffic to the one target
// that has it. Don't use it.
type pureAffinity struct {
	Basic
	cfg  PureAffinity
	intn func(int) int
}

func (p *pureAffinity) Terms() ([]string, string) { return []string{"uncached"}, "tokens" }

func (p *pureAffinity) Pick(req *Request, cands []Candidate) int {
	n := tokensOf(req)
	for i := range cands {
		c := &cands[i]
		c.Cost = float64(n - cachedOn(req, c, p.cfg.Predicted))
		c.Terms = [MaxTerms]float64{c.Cost}
	}
	if p.cfg.Ties == "lowest" {
		return lowest(cands, 0, func(int) int { return 0 })
	}
	return lowestThenLoad(cands, 0, p.intn)
}

// lowestThenLoad returns the candidate with the lowest Cost, of those within eps
// the one with the fewest requests, of those one at random.
func lowestThenLoad(cands []Candidate, eps float64, intn func(int) int) int {
	best := cands[0].Cost
	for i := range cands {
		best = min(best, cands[i].Cost)
	}
	pick, n, load := 0, 0, 0
	for i := range cands {
		if cands[i].Cost > best+eps {
			continue
		}
		switch l := cands[i].Load.Requests; {
		case n == 0 || l < load:
			pick, n, load = i, 1, l
		case l == load:
			n++
		}
	}
	if n <= 1 {
		return pick
	}
	k := intn(n)
	for i := pick; ; i++ {
		if cands[i].Cost <= best+eps && cands[i].Load.Requests == load {
			if k == 0 {
				return i
			}
			k--
		}
	}
}
