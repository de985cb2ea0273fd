package learn

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
)

func TestState(t *testing.T) {
	a := NewFleet(Coefficients{}, true)
	w := &watched{Coefficients: scaled(3), r: rand.New(rand.NewPCG(7, 7))}
	for i := range 3 {
		a.Seen(kv.Target(i), uint64(i+1))
	}
	for range 200 {
		w.first(a, 0, 0)
		w.first(a, 2, 0)
		w.done(a, 2)
	}
	a.Forget(2) // parked, and saved all the same
	state := a.AppendState([]byte("before"))
	if !bytes.HasPrefix(state, []byte("before{")) {
		t.Fatalf("%.20s: what was there is gone", state)
	}
	state = state[len("before"):]
	b := NewFleet(Coefficients{}, true)
	if err := b.LoadState(state); err != nil {
		t.Fatal(err)
	}
	// After the restart the same replicas have other numbers.
	for i, identity := range []uint64{3, 2, 1} {
		b.Seen(kv.Target(i), identity)
	}
	a.Seen(2, 3)
	got, want := b.Learned(0), a.Learned(2)
	if !got.Prefill.Last.Equal(want.Prefill.Last) || !got.Decode.Last.Equal(want.Decode.Last) {
		t.Errorf("samples of %v and %v after the restart, want %v and %v", got.Prefill.Last, got.Decode.Last, want.Prefill.Last, want.Decode.Last)
	}
	got.Prefill.Last, got.Decode.Last = want.Prefill.Last, want.Decode.Last // another zone
	if got != want || want.Prefill.Samples == 0 || want.Prefill.Error == 0 {
		t.Errorf("%+v after the restart, want %+v", got, want)
	}
	if got := b.AppendState(nil); !bytes.Contains(got, []byte(`"version":1`)) {
		t.Errorf("%s", got)
	}
	before := b.Learned(0)
	for _, bad := range []string{
		"", "{", `{"kind":"x","version":1}`, `{"kind":"kvasir-calibration","version":2}`,
		strings.Replace(string(state), `"coefficients":[`, `"coefficients":[9`, 1),
		strings.Replace(string(state), `"prior":[`, `"prior":[-`, 1),
		strings.Replace(string(state), `"samples":`, `"samples":-`, 1),
		strings.Replace(string(state), `"spread":`, `"spread":-`, 1),
		strings.Replace(string(state), `"spread":`, `"spread":3`, 1),
		strings.Replace(string(state), `"log":`, `"log":2e1`, 1),
		strings.Replace(string(state), `"output":[`, `"output":[-`, 1),
	} {
		if err := b.LoadState([]byte(bad)); err == nil {
			t.Errorf("accepted %.120s", bad)
		}
	}
	if b.Learned(0) != before {
		t.Error("a refused state has changed something")
	}
}

// A state of an older Kvasir, without spreads and times, is taken up.
func TestOldState(t *testing.T) {
	f := NewFleet(Coefficients{}, true)
	if err := f.LoadState([]byte(oldState)); err != nil {
		t.Fatal(err)
	}
	f.Seen(5, 1)
	if l := f.Learned(5); !l.Prefill.Clear || l.Prefill.Samples != 99 || l.Prefill.Error != 0 || !l.Prefill.Last.IsZero() || l.Output != 200 {
		t.Errorf("%+v", l)
	}
}

const oldState = `{"kind":"kvasir-calibration","version":1,"output":[1000,5],"prefill":{},"decode":{},"targets":[{"identity":1,"prefill":{"log":1,"samples":99,"clear":true},"decode":{}}]}`

func FuzzLoadState(f *testing.F) {
	f.Add([]byte(oldState))
	f.Add(NewFleet(known, true).AppendState(nil))
	f.Fuzz(func(t *testing.T, src []byte) {
		f := NewFleet(Coefficients{}, true)
		if f.LoadState(src) != nil {
			return
		}
		for i := range 3 {
			f.Seen(kv.Target(i), uint64(i+1))
		}
		for k := range 60 {
			f.FirstToken(&kv.FirstToken{Prompt: 1000 + k, Alone: true, Latency: time.Second, MaxBatch: 8192}, 8192)
			f.Done(&kv.Done{Output: 100, Streaming: time.Second, Requests: 2, Tokens: 1000})
		}
		for i := range 3 {
			checkFinite(t, f.Learned(kv.Target(i)))
		}
	})
}

// checkFinite fails where a figure can't be a time, or can't be written as JSON.
func checkFinite(t *testing.T, l Learned) {
	t.Helper()
	for _, v := range []float64{l.PrefillToken, l.Attention, l.Step, l.DecodeStep, l.DecodeRequest, l.DecodeToken, l.Prefill.Ratio, l.Decode.Ratio} {
		if !(v > 0) || math.IsInf(v, 0) {
			t.Fatalf("%+v", l)
		}
	}
	for _, v := range []float64{l.Prefill.Error, l.Decode.Error, l.Output} {
		if !(v >= 0) || math.IsInf(v, 0) {
			t.Fatalf("%+v", l)
		}
	}
}
