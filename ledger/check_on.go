//go:build invariants

package ledger

// invariants turns on checks after changes, see verify.
const invariants = true

// A counter counts calls of verify.
type counter int

// verify checks after a change. A check costs as much as there is in flight, so after
// the first thousands only every 97th change is followed by one.
func (l *Ledger) verify() {
	if l.checks++; l.checks <= 4096 || l.checks%97 == 0 {
		l.check()
	}
}
