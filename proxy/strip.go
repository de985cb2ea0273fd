package proxy

import "strings"

// A headerNames is a list of header names, in any case; one * in a name stands for any
// text: x-*-dp-rank is x-routed-dp-rank too.
type headerNames []string

func (n headerNames) has(name string) bool {
	for _, pattern := range n {
		before, after, wild := strings.Cut(pattern, "*")
		switch {
		case !wild:
			if strings.EqualFold(name, pattern) {
				return true
			}
		case len(name) >= len(before)+len(after) &&
			strings.EqualFold(name[:len(before)], before) && strings.EqualFold(name[len(name)-len(after):], after):
			return true
		}
	}
	return false
}

// badHeaderName returns the first that is no name of a header, "" if all are.
func badHeaderName(names []string) (string, bool) {
	for _, n := range names {
		if n == "" || strings.Count(n, "*") > 1 || n == "*" || strings.Trim(strings.ToLower(n), "abcdefghijklmnopqrstuvwxyz0123456789-_*") != "" {
			return n, true
		}
	}
	return "", false
}
