package learn

import (
	"math"
	"testing"
)

func TestMean(t *testing.T) {
	var m Mean
	if m.Or(7) != 7 || m.Weight() != 0 {
		t.Errorf("empty: %v of %v", m.Or(7), m.Weight())
	}
	for _, v := range []float64{1, 2, 6} {
		m.Add(v, 10)
	}
	if m.Or(7) != 3 || m.Weight() != 3 {
		t.Errorf("mean %v of %v values, want 3 of 3", m.Or(7), m.Weight())
	}
	for range 10 {
		m.Add(3, 10)
	}
	if m.Weight() != 10 || math.Abs(m.Or(7)-3) > 1e-9 {
		t.Errorf("mean %v of %v values, want 3 of at most 10", m.Or(7), m.Weight())
	}
	m.Add(13, 10) // takes the place of a tenth of what was there
	if math.Abs(m.Or(7)-4) > 1e-9 {
		t.Errorf("mean %v, want 4", m.Or(7))
	}
}
