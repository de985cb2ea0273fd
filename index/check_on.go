//go:build invariants

package index

// invariants turns on checks after events, see verify.
const invariants = true
