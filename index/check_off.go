//go:build !invariants

package index

// invariants turns on checks after events, see verify: go test -tags invariants.
const invariants = false
