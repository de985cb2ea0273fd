//go:build !invariants

package ledger

// invariants turns on checks after changes: go test -tags invariants.
const invariants = false

type sampler struct{}

func (*sampler) due() bool { return false }
