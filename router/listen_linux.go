package router

import "syscall"

// dataFirst makes the kernel hand connections over when there is something to read on
// them, or after a second (tcp(7), TCP_DEFER_ACCEPT). A kernel that can't, doesn't:
// only the order is lost.
func dataFirst(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT, 1)
	})
}
