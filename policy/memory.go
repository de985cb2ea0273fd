package policy

import (
	"kvasir/kv"
	"kvasir/policy/learn"
)

// memoryShare returns which share of the memory that all in flight at c and this
// request need is there (docs/cost.md, "Memory"): at most 1; 1 where that isn't known.
// What is cached and not in flight is no obstacle: it is evicted. output is the mean
// length of answers.
func memoryShare(req *Request, c *Candidate, output float64) float64 {
	l := &c.Load
	if c.Blocks <= 0 || c.BlockSize <= 0 || l.Requests == 0 {
		return 1
	}
	block := ledgerBlock(req, c)
	asked := l.NewBlocks * block
	if len(req.Hashes) == 0 {
		asked = tokensOf(req)
	}
	need := float64(l.DecodeBlocks*block+asked) + float64(l.Requests+1)*output
	return min(1, float64(c.Blocks)*float64(c.BlockSize)/need)
}

// ledgerBlock returns the tokens of a block as the ledger counts them: pages too
// small to be hashed one by one are counted in chunks (kv.ChainSize).
func ledgerBlock(req *Request, c *Candidate) int {
	if c.BlockSize < kv.MinChunk {
		return req.BlockSize
	}
	return c.BlockSize
}

// roomiest returns the largest memoryShare among cands.
func roomiest(req *Request, cands []Candidate, output float64) (share float64) {
	for i := range cands {
		if share = max(share, memoryShare(req, &cands[i], output)); share == 1 {
			return 1
		}
	}
	return share
}

// memoryWait returns how long the request would wait for KV memory, in seconds. Those
// in the batch are spread evenly over their lives, so as many tokens as the cache
// holds come free in one life. Example: a share of a third waits two lives.
func memoryWait(k *learn.Coefficients, l *kv.Load, share, output float64) float64 {
	if share == 1 {
		return 0
	}
	life := output * (k.DecodeStep + float64(l.Requests)*k.DecodeRequest + float64(l.Prompt)*k.DecodeToken)
	return min(life*(1/share-1), maxMemoryWait)
}

// surviving returns how much of hit cached tokens is still there when the request
// is computed, where memory is shorter than elsewhere. What others in flight use
// too stays; the rest is the first to be evicted while it waits. Where memory is
// short everywhere alike, going elsewhere saves nothing. The square is by
// experiment (docs/notes/0006-the-default-policy.md, "The price of memory").
func surviving(req *Request, c *Candidate, hit int, share, room float64) int {
	if share >= room {
		return hit
	}
	live := 0
	if n := len(req.Hashes) - c.Load.NewBlocks; n > 0 {
		live = min(hit, n*ledgerBlock(req, c))
	}
	return live + int(float64(hit-live)*(share/room)*(share/room))
}

// maxMemoryWait bounds what a wrong figure of an engine can do.
const maxMemoryWait = 600 // s

// fullness returns the share of c's blocks that are known to hold something, 0 where
// the size of its cache isn't known.
func fullness(c *Candidate) float64 {
	if c.Blocks <= 0 {
		return 0
	}
	return min(1, float64(c.Held)/float64(c.Blocks))
}
