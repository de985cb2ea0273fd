package config

import (
	"strings"
	"testing"
)

// A panic anywhere behind Parse is an error that names the file: no Config at all is the surest one.
func TestFence(t *testing.T) {
	err := Parse("kvasir.yaml", []byte(engines), nil)
	if err == nil || !strings.HasPrefix(err.Error(), "kvasir.yaml: the YAML reader gave up (") {
		t.Errorf("%v", err)
	}
}
