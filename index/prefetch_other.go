//go:build !amd64

package index

import "kvasir/kv"

func prefetchRow(*row, *rowOwn, *kv.Handle, *kv.Hash) {}
