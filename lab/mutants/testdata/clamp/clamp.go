// Package clamp is what the tests of mutants change: small, and tested badly on purpose.
package clamp

// A Range has a lower and an upper end.
type Range struct{ Low, High int }

// New returns the range of n wide from low.
func New(low, n int) Range { return Range{Low: low, High: low + n} }

// Clamp returns x, or the end of r that it has passed.
func (r Range) Clamp(x int) int {
	if x < r.Low {
		return r.Low
	}
	return min(x, r.High)
}

// Twice is called by no test.
func Twice(x int) int { return 2 * x }
