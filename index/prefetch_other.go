//go:build !amd64

package index

import "kvasir/kv"

func prefetch(*bucket) {}

func prefetch4(_, _, _, _ *bucket) {}

func prefetchRow(*row, *rowOwn, *kv.Handle, *kv.Hash) {}
