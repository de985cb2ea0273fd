package table

// prefetch and prefetch4 ask for cache lines, and don't wait for them. A load
// would: instructions behind it can't retire before it has its value.
//
//go:noescape
func prefetch(p *bucket)

//go:noescape
func prefetch4(a, b, c, d *bucket)
