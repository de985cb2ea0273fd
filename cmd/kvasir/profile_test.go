package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvasir/lab/mock"
)

func TestProfileOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fit.json")
	if err := os.WriteFile(file, []byte(`{"profile": {"Name": "fitted", "C0": 0.02, "CP": 0.001, "Budget": 512, "MaxSeqs": 16, "KVTokens": 8192}, "overhead_s": 0.01}`), 0o600); err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(bare, []byte(`{"Name": "mine", "C0": 0.02, "CP": 0.001, "Budget": 512, "MaxSeqs": 16, "KVTokens": 4096}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cheap := mock.Profile8B
	cheap.Name, cheap.CP, cheap.KVTokens = "8b:cp=2e-4,kv_tokens=8192", 2e-4, 8192
	fitted := mock.Profile{Name: "fitted", C0: .02, CP: .001, Budget: 512, MaxSeqs: 16, KVTokens: 8192}
	small := fitted
	small.Name, small.KVTokens = file+":kv_tokens=100", 100
	mine := fitted
	mine.Name, mine.KVTokens = "mine", 4096
	for text, want := range map[string]mock.Profile{"70b": mock.Profile70B, cheap.Name: cheap, file: fitted, small.Name: small, bare: mine} {
		if got, err := profileOf(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty.json")
	if err := os.WriteFile(empty, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"7b": `profile "7b" is unknown`, "8b:": `""`, "8b:speed=2": "no constant \"speed\"", "8b:cp=x": "cp=x", "8b:cp=-1": "cp=-1", "./none.json": "none.json", empty: "no profile",
	} {
		if _, err := profileOf(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}
