#include "textflag.h"

// func prefetchRow(r *row, o *rowOwn, name *kv.Handle, hash *kv.Hash)
TEXT ·prefetchRow(SB), NOSPLIT, $0-32
	MOVQ r+0(FP), AX
	MOVQ o+8(FP), BX
	MOVQ name+16(FP), CX
	MOVQ hash+24(FP), DX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	PREFETCHT0 (CX)
	PREFETCHT0 (DX)
	RET
