package policy

// memoryWait returns how long the request would wait at c for KV memory, in
// seconds, and which share of those in flight there can decode at a time: M and f
// of marginal.
func (k *Coefficients) memoryWait(req *Request, c *Candidate, expect float64) (wait, share float64) {
	l := &c.Load
	if c.Blocks <= 0 || c.BlockSize <= 0 || l.Requests == 0 {
		return 0, 1
	}
	block := c.BlockSize // of the ledger
	if block < 16 {      // pages too small to be hashed one by one (index.ChainSize)
		block = req.BlockSize
	}
	asked := l.NewBlocks * block
	if len(req.Hashes) == 0 {
		asked = tokensOf(req)
	}
	n := float64(l.Requests)
	need := float64(l.DecodeBlocks*block+asked) + (n+1)*expect
	have := float64(c.Blocks) * float64(c.BlockSize)
	if need <= have {
		return 0, 1
	}
	life := expect * (k.DecodeStep + n*k.DecodeRequest + float64(l.Prompt)*k.DecodeToken)
	return min(life*(need/have-1), maxMemoryWait), have / need
}

// maxMemoryWait bounds what a wrong figure of an engine can do.
const maxMemoryWait = 600 // s
