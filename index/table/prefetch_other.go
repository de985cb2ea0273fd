//go:build !amd64

package table

func prefetch(*bucket) {}

func prefetch4(_, _, _, _ *bucket) {}
