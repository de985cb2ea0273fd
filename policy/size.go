package policy

import "kvasir/kv"

// tokensOf returns the prompt's length, at least 1.
func tokensOf(req *Request) int { return max(1, req.Tokens) }

// blockOf returns the block size of c in tokens, never 0.
func blockOf(req *Request, c *Candidate) int {
	switch {
	case c.BlockSize > 0:
		return c.BlockSize
	case req.BlockSize > 0:
		return req.BlockSize
	}
	return 16 // what most engines start with
}

// heldBy returns the tokens of the prompt that c holds on GPU, and beyond that on
// host and disk. Predicted blocks count as held on GPU if predicted is set, and
// always where the index can't be believed, since there they are all we have.
func heldBy(c *Candidate, predicted bool) (gpu, host, disk int) {
	o := &c.Overlap
	gpu, host, disk = int(o.GPU), int(o.Host), int(o.Disk)
	if o.Predicted > 0 && (predicted || c.Trust == kv.Unknown || c.Trust == kv.Blind) {
		p := int(o.Predicted)
		gpu += p
		host, disk = max(0, host-p), max(0, disk-max(0, p-host))
	}
	return gpu, host, disk
}

// cachedOn returns the tokens of the prompt that c need not compute: at most all
// but one, as engines compute at least one.
func cachedOn(req *Request, c *Candidate, predicted bool) int {
	gpu, host, disk := heldBy(c, predicted)
	return max(0, min(gpu+host+disk, tokensOf(req)-1))
}

// blocks returns how many blocks tokens are. Overlaps are whole blocks but for
// the last token of a prompt, which is why this rounds up.
func blocks(tokens, size int) float64 {
	return float64((tokens + size - 1) / size)
}
