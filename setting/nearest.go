package setting

import (
	"math"
	"strings"
)

// Nearest returns the one of words that text was probably meant to be, "" if none
// is near.
func Nearest(text string, words []string) string {
	if text == "" {
		return ""
	}
	best, dist := "", math.MaxInt
	for _, w := range words {
		if d := distance(text, w); d < dist {
			best, dist = w, d
		}
	}
	if dist > 1+len(best)/3 || best == "" {
		return ""
	}
	return best
}

// distance is the number of letters to insert, delete or change between a and b,
// where "-" and "_" are the same.
func distance(a, b string) int {
	a, b = strings.ReplaceAll(strings.ToLower(a), "-", "_"), strings.ReplaceAll(strings.ToLower(b), "-", "_")
	if len(a) > 64 {
		return math.MaxInt - 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			up := row[j+1]
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(diag+cost, up+1, row[j]+1)
			diag = up
		}
	}
	return row[len(b)]
}
