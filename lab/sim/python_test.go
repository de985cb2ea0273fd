package sim

import (
	"math"
	"slices"
	"testing"
)

// What CPython gives (docs/mock.md, "Random numbers").
func TestPython(t *testing.T) {
	p := NewPython(1)
	for i, want := range []uint32{577090037, 2444712010, 3639700191, 3445702192} {
		if got := p.Uint32(); got != want {
			t.Errorf("Random(1).getrandbits(32) number %d is %d, want %d", i, got, want)
		}
	}
	draws := func(p *Python, n, k int) (out []int) {
		for range k {
			out = append(out, p.Intn(n))
		}
		return out
	}
	if got, want := draws(NewPython(1), 8, 12), []int{2, 1, 4, 1, 7, 7, 7, 6, 3, 1, 7, 0}; !slices.Equal(got, want) {
		t.Errorf("Random(1).randrange(8): %v, want %v", got, want)
	}
	if got, want := draws(NewPython(1), 4, 12), []int{1, 0, 2, 0, 3, 3, 3, 3, 1, 0, 3, 0}; !slices.Equal(got, want) {
		t.Errorf("Random(1).randrange(4): %v, want %v", got, want)
	}
	// CPython 3.13: r = random.Random(7), r.randrange(n) in this order.
	p = NewPython(7)
	for _, d := range [][2]int{{1 << 53, 7112505144773943}, {1 << 53, 869849637299280}, {1 << 53, 1695698339729451}, {1 << 32, 2179419893}, {1 << 32, 161042648},
		{5, 3}, {3 << 40, 306738713755}, {1<<62 + 1, 836679885360207652}} {
		if got := p.Intn(d[0]); got != d[1] {
			t.Errorf("Random(7).randrange(%d): %d, want %d", d[0], got, d[1])
		}
	}
	p = NewPython(3)
	for i, want := range []float64{.23796462709189137, .5442292252959519, .36995516654807925} {
		if got := p.Float64(); got != want {
			t.Errorf("Random(3).random() number %d is %v, want %v", i, got, want)
		}
	}
	list := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	NewPython(3).Shuffle(10, func(i, j int) { list[i], list[j] = list[j], list[i] })
	if want := []int{1, 5, 6, 0, 9, 4, 7, 2, 8, 3}; !slices.Equal(list, want) {
		t.Errorf("Random(3).shuffle: %v, want %v", list, want)
	}
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 1e-14*math.Abs(want) {
			t.Errorf("%s = %.17g, want %.17g", name, got, want)
		}
	}
	p = NewPython(5)
	near("first expovariate", p.Exp(6.5), .15003836450221442)
	near("second expovariate", p.Exp(6.5), .20830314025835334)
	near("random after them", p.Float64(), .7951935655656966)
	p = NewPython(5)
	for _, want := range []float64{30.463829830467397, 2.9681866947656905, 12.54812540984946} {
		near("lognormvariate", p.LogNormal(2.6, 1), want)
	}
	p = NewPython(11)
	for _, want := range [][]int{{7, 6}, {7, 3}, {3, 1}, {7, 5}} {
		if got := p.Sample(8, 2); !slices.Equal(got, want) {
			t.Errorf("Random(11).sample(range(8), 2): %v, want %v", got, want)
		}
	}
}
