//go:build !invariants

package load

// invariants turns on a full check after each change: go test -tags invariants.
const invariants = false
