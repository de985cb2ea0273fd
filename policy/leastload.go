package policy

// LeastLoad configures `least_load`.
type LeastLoad struct {
	// By is what is counted: requests in flight, or tokens (prompt tokens in flight plus
	// those still to be computed: once as memory, once as work).
	By string `yaml:"by" default:"requests" oneof:"requests|tokens"`
}

// leastLoad picks the target that owes least, by the router's own ledger. Ties
// are broken uniformly, so that an idle fleet is filled evenly.
type leastLoad struct {
	Basic
	by   string
	intn func(int) int
}

func (p *leastLoad) Terms() ([]string, string) {
	if p.by == "tokens" {
		return []string{"prefill", "prompt"}, "tokens"
	}
	return []string{"requests"}, "requests"
}

func (p *leastLoad) Pick(_ *Request, cands []Candidate) int {
	for i := range cands {
		c := &cands[i]
		if p.by == "tokens" {
			c.Terms = [MaxTerms]float64{float64(c.Load.Prefill), float64(c.Load.Prompt)}
		} else {
			c.Terms = [MaxTerms]float64{float64(c.Load.Requests)}
		}
		c.Cost = c.Terms[0] + c.Terms[1]
	}
	return lowest(cands, 0, p.intn)
}
