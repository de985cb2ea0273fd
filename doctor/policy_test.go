package doctor

import (
	"strings"
	"testing"

	"kvasir/config"
)

// A section that nothing reads is told of; what the policy reads, and what is on, isn't.
func TestCheckPolicy(t *testing.T) {
	cfg := config.Defaults()
	if got := CheckPolicy(cfg); got != nil {
		t.Errorf("%+v of the defaults", got)
	}
	cfg.Policy.Name, cfg.Policy.Marginal.Kappa, cfg.Policy.Dynamo.Temperature = "dynamo", 2, .5
	got := CheckPolicy(cfg)
	if len(got) != 1 || len(got[0].Lines) != 1 || got[0].Lines[0].Bad || got[0].Lines[0].Fix == "" || !strings.Contains(got[0].Lines[0].Says, "policy.marginal") {
		t.Errorf("%+v, want a warning of marginal", got)
	}
}
