package policy

// random picks uniformly: the control that every other policy must beat.
type random struct {
	Basic
	intn func(int) int
}

func (p *random) Pick(_ *Request, cands []Candidate) int { return p.intn(len(cands)) }
