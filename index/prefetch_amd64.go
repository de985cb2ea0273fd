package index

import "unsafe"

// prefetch asks for the cache line at p, and doesn't wait for it. A load would:
// instructions behind it can't retire before it has its value.
//
//go:noescape
func prefetch(p unsafe.Pointer)

//go:noescape
func prefetch4(a, b, c, d unsafe.Pointer)
