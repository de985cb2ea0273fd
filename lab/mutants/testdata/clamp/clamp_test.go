package clamp

import "testing"

// Nothing asks for a value below the range.
func TestClamp(t *testing.T) {
	if got := New(2, 3).Clamp(9); got != 5 {
		t.Errorf("Clamp(9) = %d, want 5", got)
	}
	if got := New(2, 3).Clamp(4); got != 4 {
		t.Errorf("Clamp(4) = %d, want 4", got)
	}
}
