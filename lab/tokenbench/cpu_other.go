//go:build !linux

package tokenbench

import "time"

var started = time.Now()

// threadCPU is wall time where a thread's CPU time can't be asked for without cgo:
// measure on an idle machine there.
func threadCPU() time.Duration { return time.Since(started) }

func processCPU() time.Duration { return time.Since(started) }
