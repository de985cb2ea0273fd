package sim

import (
	"math"
	"math/bits"
)

// A Python is CPython's random.Random: MT19937 (Matsumoto and Nishimura 1998),
// seeded as random.seed(int) does it, with the draws of CPython's random.py. It
// lets random ties and generated workloads agree exactly with the reference
// simulator (docs/mock.md, "Random numbers").
type Python struct {
	mt  [624]uint32
	pos int
}

// NewPython returns random.Random(seed).
func NewPython(seed uint64) *Python {
	key := []uint32{uint32(seed)}
	if hi := uint32(seed >> 32); hi != 0 {
		key = append(key, hi)
	}
	p := &Python{pos: 624}
	p.mt[0] = 19650218
	for i := 1; i < 624; i++ {
		p.mt[i] = 1812433253*(p.mt[i-1]^p.mt[i-1]>>30) + uint32(i)
	}
	i, j := 1, 0
	for range 624 {
		p.mt[i] = (p.mt[i] ^ (p.mt[i-1]^p.mt[i-1]>>30)*1664525) + key[j] + uint32(j)
		if i++; i >= 624 {
			p.mt[0], i = p.mt[623], 1
		}
		if j++; j >= len(key) {
			j = 0
		}
	}
	for range 623 {
		p.mt[i] = (p.mt[i] ^ (p.mt[i-1]^p.mt[i-1]>>30)*1566083941) - uint32(i)
		if i++; i >= 624 {
			p.mt[0], i = p.mt[623], 1
		}
	}
	p.mt[0] = 1 << 31
	return p
}

// Uint32 returns the next 32 bits.
func (p *Python) Uint32() uint32 {
	if p.pos >= 624 {
		for k := range 624 {
			y := p.mt[k]&(1<<31) | p.mt[(k+1)%624]&(1<<31-1)
			v := p.mt[(k+397)%624] ^ y>>1
			if y&1 != 0 {
				v ^= 0x9908b0df
			}
			p.mt[k] = v
		}
		p.pos = 0
	}
	y := p.mt[p.pos]
	p.pos++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// Float64 is random(): a number in [0, 1) of 53 bits.
func (p *Python) Float64() float64 {
	a, b := p.Uint32()>>5, p.Uint32()>>6
	return (float64(a)*67108864 + float64(b)) / (1 << 53)
}

// Intn is randrange(n), n at least 1: draws of as many bits as n has, until one is
// below n.
func (p *Python) Intn(n int) int {
	width := bits.Len64(uint64(n))
	for {
		if r := int(p.bits(width)); r < n {
			return r
		}
	}
}

// bits is getrandbits(n), n from 1 to 63: whole words first, the lowest first.
func (p *Python) bits(n int) uint64 {
	if n <= 32 {
		return uint64(p.Uint32() >> (32 - n))
	}
	low := uint64(p.Uint32())
	return low | uint64(p.Uint32()>>(64-n))<<32
}

// Shuffle is shuffle of a list of n.
func (p *Python) Shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i >= 1; i-- {
		swap(i, p.Intn(i+1))
	}
}

// Sample is sample(range(n), k) for small n.
func (p *Python) Sample(n, k int) []int {
	pool := make([]int, n)
	for i := range pool {
		pool[i] = i
	}
	out := make([]int, k)
	for i := range out {
		j := p.Intn(n - i)
		out[i], pool[j] = pool[j], pool[n-i-1]
	}
	return out
}

// Exp is expovariate(rate).
func (p *Python) Exp(rate float64) float64 { return -math.Log(1-p.Float64()) / rate }

// LogNormal is lognormvariate(mu, sigma), by Kinderman and Monahan's ratio.
func (p *Python) LogNormal(mu, sigma float64) float64 {
	magic := 4 * math.Exp(-0.5) / math.Sqrt2
	for {
		u1 := p.Float64()
		u2 := 1 - p.Float64()
		z := magic * (u1 - 0.5) / u2
		if z*z/4 <= -math.Log(u2) {
			return math.Exp(mu + float64(z*sigma))
		}
	}
}
