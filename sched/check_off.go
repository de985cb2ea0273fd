//go:build !invariants

package sched

import (
	"kvasir/kv"
	"kvasir/ledger"
)

// An audit does nothing without the tag invariants: see check_on.go.
type audit struct{}

func (*audit) booked(*Decision)                             {}
func (*audit) predicted(*Decision, int)                     {}
func (*audit) leaving()                                     {}
func (*audit) unpredicted(kv.Target, int)                   {}
func (*audit) ended(*Decision)                              {}
func (*audit) dropped(func(t kv.Target, id ledger.ID) bool) {}
func (s *Scheduler) check()                                 {}
