//go:build invariants

package ledger

// invariants turns on checks after changes.
const invariants = true

// A sampler says after which changes to check. A check costs as much as there is in
// flight, so after the first thousands it is every 97th.
type sampler int

func (s *sampler) due() bool {
	*s++
	return *s <= 4096 || *s%97 == 0
}
