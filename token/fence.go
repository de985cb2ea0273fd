package token

import "fmt"

// fence makes an error of a panic in code that reads bytes from outside, ours or a
// library's: the request is routed by load. Without it the panic of one engine's
// answer, read in singleflight's goroutine, would end the process.
//
//	defer fence(&err)
func fence(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("a bug in Kvasir or its JSON library, please report it: %v", p)
	}
}
