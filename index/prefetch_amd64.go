package index

import "kvasir/kv"

// prefetchRow asks for the cache lines of both parts of a row, of a name and of a
// hash in it, and doesn't wait for them. A load would: instructions behind it
// can't retire before it has its value.
//
//go:noescape
func prefetchRow(r *row, o *rowOwn, name *kv.Handle, hash *kv.Hash)
