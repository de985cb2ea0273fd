//go:build !amd64

package index

import "unsafe"

func prefetch(unsafe.Pointer) {}

func prefetch4(_, _, _, _ unsafe.Pointer) {}
