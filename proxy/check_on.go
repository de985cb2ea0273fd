//go:build invariants

package proxy

// invariants counts what the scanner does with a body.
const invariants = true
