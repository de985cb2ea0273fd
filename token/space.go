package token

import (
	"runtime"
	"sync"
	"weak"

	"kvasir/token/bpe"
)

// spaces numbers the tokenizers that are in use. bpe.Load gives the same one for
// equal files, so adapters and copies of a model have one number. A number is never
// used again.
var spaces struct {
	sync.Mutex
	last uint64
	by   map[weak.Pointer[bpe.Tokenizer]]uint64
}

func spaceOf(tok *bpe.Tokenizer) uint64 {
	spaces.Lock()
	defer spaces.Unlock()
	p := weak.Make(tok)
	if n, ok := spaces.by[p]; ok {
		return n
	}
	if spaces.by == nil {
		spaces.by = map[weak.Pointer[bpe.Tokenizer]]uint64{}
	}
	spaces.last++
	spaces.by[p] = spaces.last
	runtime.AddCleanup(tok, func(p weak.Pointer[bpe.Tokenizer]) {
		spaces.Lock()
		defer spaces.Unlock()
		delete(spaces.by, p)
	}, p)
	return spaces.last
}
