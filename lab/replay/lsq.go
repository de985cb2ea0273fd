package replay

import (
	"math"
	"slices"
)

// leastSquares finds non-negative k with sum_j k[j]*x[i][j] near y[i]. It weighs each
// row by its size (errors of times grow with them) and then, a few times over, rows
// that are far off less (Huber 1964), so that a measurement that was disturbed
// doesn't bend the rest. A coefficient that would be negative is 0.
func leastSquares(x [][]float64, y []float64) []float64 {
	base := make([]float64, len(y))
	for i := range y {
		base[i] = 1 / math.Max(math.Abs(y[i]), 1e-6)
	}
	w := slices.Clone(base)
	var k []float64
	for range 20 {
		k = nonNegative(x, y, w)
		r := make([]float64, len(y))
		for i := range y {
			r[i] = math.Abs(dot(x[i], k)-y[i]) * base[i]
		}
		s := slices.Clone(r)
		slices.Sort(s)
		limit := math.Max(1.5*1.4826*s[len(s)/2], 1e-9) // of 1.5 robust standard deviations
		for i := range w {
			w[i] = base[i] * math.Sqrt(math.Min(1, limit/math.Max(r[i], 1e-300)))
		}
	}
	return k
}

// nonNegative drops the most negative coefficient until none is left. With three of
// them that is as good as Lawson and Hanson's.
func nonNegative(x [][]float64, y, w []float64) []float64 {
	n := len(x[0])
	use := make([]bool, n)
	for j := range use {
		use[j] = true
	}
	for {
		k := solveNormal(x, y, w, use)
		worst := -1
		for j := range k {
			if k[j] < 0 && (worst < 0 || k[j]*scale(x, j) < k[worst]*scale(x, worst)) {
				worst = j
			}
		}
		if worst < 0 {
			return k
		}
		use[worst] = false
	}
}

func scale(x [][]float64, j int) float64 {
	m := 0.0
	for i := range x {
		m = math.Max(m, math.Abs(x[i][j]))
	}
	return m
}

func dot(a, b []float64) (s float64) {
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

// solveNormal solves the weighted normal equations over the columns in use, scaled
// to equal size, by elimination with pivots.
func solveNormal(x [][]float64, y, w []float64, use []bool) []float64 {
	n := len(use)
	size := make([]float64, n)
	a := make([][]float64, n)
	for j := range a {
		a[j] = make([]float64, n+1)
		if size[j] = scale(x, j); size[j] == 0 {
			size[j] = 1
		}
	}
	for i := range x {
		for j := range n {
			for l := range n {
				a[j][l] += w[i] * w[i] * x[i][j] / size[j] * x[i][l] / size[l]
			}
			a[j][n] += w[i] * w[i] * x[i][j] / size[j] * y[i]
		}
	}
	for j := range n {
		if !use[j] {
			for l := range n + 1 {
				a[j][l] = 0
			}
			for l := range n {
				a[l][j] = 0
			}
			a[j][j] = 1
		}
	}
	for j := range n {
		pivot := j
		for l := j + 1; l < n; l++ {
			if math.Abs(a[l][j]) > math.Abs(a[pivot][j]) {
				pivot = l
			}
		}
		a[j], a[pivot] = a[pivot], a[j]
		if a[j][j] == 0 {
			continue // a column that says nothing: 0
		}
		for l := range n {
			if l == j {
				continue
			}
			f := a[l][j] / a[j][j]
			for m := j; m <= n; m++ {
				a[l][m] -= f * a[j][m]
			}
		}
	}
	k := make([]float64, n)
	for j := range n {
		if a[j][j] != 0 && use[j] {
			k[j] = a[j][n] / a[j][j] / size[j]
		}
	}
	return k
}
