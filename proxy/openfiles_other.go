//go:build !unix

package proxy

// openFiles returns how many connections of clients there may be.
func openFiles() int { return maxAutoConns }
