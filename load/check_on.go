//go:build invariants

package load

// invariants turns on a full check after each change.
const invariants = true
