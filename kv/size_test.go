package kv

import "testing"

func TestChainSize(t *testing.T) {
	for size := 1; size < 200; size++ {
		c := ChainSize(size)
		if c < MinChunk || c%size != 0 || c-size >= MinChunk || size >= MinChunk && c != size {
			t.Errorf("pages of %d make blocks of %d", size, c)
		}
	}
	if ChainSize(0) != 0 || ChainSize(-1) != -1 {
		t.Error("sizes out of range must stay as they are")
	}
}

func TestEstimateTokens(t *testing.T) {
	for bytes, want := range map[int]int{-1: 0, 0: 0, 1: 1, 4: 1, 5: 2, 400: 100} {
		if got := EstimateTokens(bytes); got != want {
			t.Errorf("%d bytes are %d tokens, want %d", bytes, got, want)
		}
	}
}

func TestChainSizeOfPages(t *testing.T) {
	for size, want := range map[int]int{1: 16, 3: 18, 4: 16, 5: 20, 8: 16, 15: 30, 16: 16, 17: 17, 24: 24, 1024: 1024} {
		if got := ChainSize(size); got != want {
			t.Errorf("pages of %d make blocks of %d, want %d", size, got, want)
		}
	}
}
