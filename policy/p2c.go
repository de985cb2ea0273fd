package policy

// p2c draws two different candidates and takes the one with fewer requests in
// flight, the first drawn if they are equal (Mitzenmacher's power of two
// choices; Ray Serve's base router).
type p2c struct {
	Basic
	intn func(int) int
}

func (p *p2c) Terms() ([]string, string) { return []string{"requests"}, "requests" }

func (p *p2c) Pick(_ *Request, cands []Candidate) int {
	for i := range cands {
		cands[i].Cost = float64(cands[i].Load.Requests)
		cands[i].Terms = [MaxTerms]float64{cands[i].Cost}
	}
	if len(cands) == 1 {
		return 0
	}
	i := p.intn(len(cands))
	j := p.intn(len(cands) - 1)
	if j >= i {
		j++
	}
	if cands[j].Cost < cands[i].Cost {
		return j
	}
	return i
}
