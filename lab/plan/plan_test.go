package plan

import (
	"math"
	"testing"
)

// The reference's napkin (docs/mock.md, "Napkin"): 280 ms cold, 112 ms warm, 2.5x,
// 2.80 against 1.12 replica-seconds per second.
func TestReference(t *testing.T) {
	p := Make(Defaults())
	for name, want := range map[string]float64{
		"work per token": 140, "cold prefill": 280, "warm prefill": 112, "speed-up of prefill": 2.5,
		"prefill load, cold": 2.8, "prefill load, warm": 1.12, "capacity freed": 1.68, "replicas for the same utilisation": 4,
	} {
		l, ok := p.Line(name)
		if !ok || math.Abs(l.Value-want) > 1e-9*want {
			t.Errorf("%s: %v, want %v", name, l.Value, want)
		}
	}
	// 3 replicas at 3 a hour for a year, by the same line.
	in := Defaults()
	in.Rate, in.Reuse = 3/.28, 1
	if l, _ := Make(in).Line("money"); math.Abs(l.Value-78840) > 1e-6 {
		t.Errorf("money: %v, want 78840", l.Value)
	}
}

func TestBadInput(t *testing.T) {
	for _, edit := range []func(*Input){
		func(in *Input) { in.Replicas = 0 }, func(in *Input) { in.Rate = 0 }, func(in *Input) { in.Reuse = 1.1 },
		func(in *Input) { in.Prompt = math.NaN() }, func(in *Input) { in.FLOPS = math.Inf(1) },
	} {
		in := Defaults()
		edit(&in)
		if err := in.Validate(); err == nil {
			t.Errorf("%+v is accepted", in)
		}
	}
}
