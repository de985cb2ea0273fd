package tokenbench

import (
	"syscall"
	"time"
	"unsafe"
)

// threadCPU is the CPU time of this thread: wall time means little on a shared
// machine.
func threadCPU() time.Duration {
	var ts syscall.Timespec
	const clockThreadCPU = 3 // CLOCK_THREAD_CPUTIME_ID, clock_gettime(2)
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPU, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}

// processCPU is the CPU time of all threads.
func processCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
