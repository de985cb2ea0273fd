package learn

import (
	"math"
	"testing"
)

// Prefill times of the reference simulator (docs/mock.md).
func TestPrefillSeconds(t *testing.T) {
	for _, c := range []struct {
		u, hit, kv, n int
		want          float64
	}{{3000, 0, 0, 0, .1672}, {2400, 9600, 38000, 3, .172558}, {20000, 0, 0, 0, 1.35}, {1, 2559, 0, 0, .010054095}, {8192, 0, 0, 0, .473287091}, {8193, 0, 0, 0, .483350199}} {
		if got := known.PrefillTime(c.u, c.hit, 8192, c.n, c.kv); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("prefill(%d, %d): %.9f, want %.9f", c.u, c.hit, got, c.want)
		}
	}
}
