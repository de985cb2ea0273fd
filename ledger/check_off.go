//go:build !invariants

package ledger

// invariants turns on a full check after each change: go test -tags invariants.
const invariants = false
