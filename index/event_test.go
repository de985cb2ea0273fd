package index

import (
	"math/rand/v2"
	"testing"

	"kvasir/index/table"
)

// TestTwice compares tagSet with a map, for lists with and without a tag twice.
func TestTwice(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s tagSet
	for _, n := range []int{1, 2, 9, 64, 500, 2000, 70000, 300} {
		for round := range 50 {
			tags, seen := make([]uint32, n), map[uint32]bool{}
			for i := range tags {
				for tags[i] = r.Uint32() >> (32 - table.TagBits); seen[tags[i]]; {
					tags[i] = r.Uint32() >> (32 - table.TagBits)
				}
				seen[tags[i]] = true
			}
			if s.twice(tags) {
				t.Fatalf("%d tags: one is said to occur twice", n)
			}
			if n > 1 {
				i := r.IntN(n)
				tags[i] = tags[(i+1+r.IntN(n-1))%n]
				if !s.twice(tags) {
					t.Fatalf("%d tags: a tag that occurs twice isn't found", n)
				}
			}
			if n > 10000 && round == 3 {
				break
			}
		}
	}
}
