package kvasir_test

import (
	"bytes"
	"os"
	"testing"

	"kvasir/config/reference"
)

// What is made from the source is what the source says. It stands here, where every
// change of any package runs it.
func TestReferenceIsCurrent(t *testing.T) {
	files, err := reference.Generate(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the source says (%v): run make docs", name, err)
		}
	}
}
