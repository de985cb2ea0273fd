package policy

// h64 mixes x: a linear step and the finaliser of splitmix64 (policies.md 2.2).
func h64(x uint64) uint64 {
	x = x*0x9e3779b97f4a7c15 + 0x7f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// rendezvous is the score of a key (hashed) at a replica: the highest score wins
// the key.
func rendezvous(key, identity uint64) uint64 { return h64(key ^ h64(identity)) }
