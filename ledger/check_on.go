//go:build invariants

package ledger

// invariants turns on a full check after each change.
const invariants = true
