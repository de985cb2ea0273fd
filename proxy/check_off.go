//go:build !invariants

package proxy

// invariants counts what the scanner does with a body: go test -tags invariants.
const invariants = false
