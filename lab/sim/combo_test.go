package sim

import (
	"context"
	"slices"
	"testing"

	"kvasir/lab/mock"
)

// Every combinator plays, with either dice; only shedding loses requests, and says so.
func TestCombinators(t *testing.T) {
	for _, spec := range []string{"diurnal:requests=1200,rate=6,period=200,swing=1,input=5000", "agent_serial:requests=60,users=20,input=8000"} {
		w, err := Generate(spec, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, dice := range []string{"python", "pcg"} {
			rep, err := Run(context.Background(), Config{Workload: w, Policies: []string{"combinators", "marginal"}, Replicas: 3, Profile: mock.Profile70B, Dice: dice})
			if err != nil {
				t.Fatal(err)
			}
			by := map[string]Result{}
			for _, r := range rep.Runs {
				by[r.Policy] = r
				if r.Requests+r.Shed != w.requests() {
					t.Errorf("%s, %s: %d answered and %d refused of %d", spec, r.Policy, r.Requests, r.Shed, w.requests())
				}
				if sheds := r.Policy == "marginal:shed"; !sheds && r.Shed > 0 {
					t.Errorf("%s, %s refuses %d", spec, r.Policy, r.Shed)
				}
			}
			if spec[0] == 'd' {
				shed, all := by["marginal:shed"], by["marginal"]
				if shed.Shed == 0 || shed.TTFT.P99 >= all.TTFT.P99 {
					t.Errorf("marginal:shed refuses %d, TTFT p99 %v s; without it is %v s", shed.Shed, shed.TTFT.P99, all.TTFT.P99)
				}
				if slices.Equal(by["marginal:explore"].Share, by["marginal"].Share) {
					t.Error("nothing is explored")
				}
			}
		}
	}
}
