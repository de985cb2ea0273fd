//go:build unix

package proxy

import "syscall"

// openFiles returns how many connections of clients fit under the limit of open files:
// each may need one to an engine, too, and some are for everything else.
func openFiles() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil || uint64(r.Cur) > 4*maxAutoConns {
		return maxAutoConns
	}
	return min(max((int(r.Cur)-64)/2, 16), maxAutoConns)
}
