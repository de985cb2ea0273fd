package router

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kvasir/config"
	"kvasir/setting"
)

// turned says which test turns each setting that is no policy's and sees what it
// does: PACKAGE.TEST, where the test names the field. "here" is a row of effects.
var turned = map[string]string{
	"listen": "cmd/kvasir.TestCheckRefuses", "admin": "router.TestReceiptsFileUnwritable",
	"engines[].url": "cmd/kvasir.TestCheckPrints", "engines[].events": "router.TestEngineDialsUs", "events_listen": "router.TestEngineDialsUs",
	"engines[].copies": "here", "engines[].host_blocks": "here", "engines[].disk_blocks": "here",
	"tokens.files.dirs": "token/files.TestOrder", "tokens.files.hub": "token/files.TestHubByItsSettings", "tokens.files.endpoint": "token/files.TestHubByItsSettings", "tokens.files.token_file": "token/files.TestHubByItsSettings", "tokens.files.cache": "token/files.TestHubByItsSettings",
	"tokens.local.verify":     "token.TestFirstRequestsAreCompared",
	"tokens.template.harmony": "token/library.TestHarmonyFollowsTheEngine",
	"proxy.max_body":          "proxy.TestChunkedBodyTooLarge", "proxy.max_bodies": "proxy.TestBodiesShareABudget", "proxy.max_conns": "proxy.TestConnectionsAreBounded",
	"proxy.max_conns_per_address": "proxy.TestConnectionsOfAnAddressAreBounded",
	"proxy.eject_share":           "proxy.TestEjectShare",
	"proxy.first_token":           "proxy.TestEveryPhaseHasALimit", "proxy.answer": "proxy.TestEveryPhaseHasALimit", "proxy.idle": "proxy.TestEveryPhaseHasALimit",
	"proxy.tokens": "proxy.TestEveryPhaseHasALimit", "proxy.hold_for": "proxy.TestHoldByItsSettings", "proxy.idle_conn": "proxy.TestIdleConnectionsEndInTime",
	"proxy.attempts": "proxy.TestRetryBudget", "proxy.retry_for": "proxy.TestRetryBudget", "proxy.retry_429": "proxy.TestRetryBudget",
	"proxy.explain": "proxy.TestAnswerOnTheWire", "proxy.forwarded_for": "proxy.TestNoHeadersOfOurs", "proxy.request_id": "proxy.TestNoHeadersOfOurs",
	"proxy.ask_usage": "proxy.TestAskUsage", "proxy.pass": "proxy.TestOtherPaths",
	"drain": "router.TestDrainLimitIsTold", "poll_metrics": "here", "state": "router.TestPolicyStateIsKept", "receipts": "here",
	"index_snapshot": "router.TestMetricsAreDocumented", "receipts_file": "router.TestReceiptsFile",
	"tokens.files.repos":                      "token/files.TestReposNameAnother",
	"tokens.local.cache_bytes":                "token.TestBeginningsAreKeptWithinCacheBytes",
	"tokens.remote.timeout":                   "token.TestQuestionsEndByTimeout",
	"tokens.remote.concurrency":               "token.TestQuestionsAtOnceAreBounded",
	"tokens.remote.cache_bytes":               "token.TestAnswersAreKeptWithinCacheBytes",
	"tokens.remote.retry":                     "token.TestRenderIsLookedForAgain",
	"proxy.body":                              "proxy.TestEveryPhaseHasALimit",
	"proxy.dial":                              "proxy.TestDialIsBounded",
	"proxy.hold_bytes":                        "proxy.TestHoldByItsSettings",
	"proxy.retry_after":                       "proxy.TestRetryAfterIsTold",
	"tokens.template.content_format":          "token/library.TestTemplateFollowsTheFlags",
	"tokens.template.default_kwargs":          "token/library.TestTemplateFollowsTheFlags",
	"tokens.template.trust_request":           "token/library.TestTemplateFollowsTheFlags",
	"tokens.template.exclude_tools_when_none": "token/library.TestTemplateFollowsTheFlags",
	"tokens.template.tokenizer_mode":          "token/library.TestTemplateFollowsTheFlags",
	"tokens.template.zone":                    "token/library.TestTemplateFollowsTheFlags",
}

// unturned are settings that are read by shipped code, and that no test turns yet.
// The list may only become shorter.
var unturned = []string{
	"engines[].replay", "engines[].ranks", "tokens.mode",
	"drain_grace", "poll", "index_bytes", "index_snapshot_every", "receipts_file_bytes", "receipts_file_keep",
}

// effects show what a setting does at its default and at another value.
var effects = map[string]func(t *testing.T, c config.Config) string{
	"engines[].copies":      engineEffect,
	"engines[].host_blocks": engineEffect,
	"engines[].disk_blocks": engineEffect,
	"poll_metrics":          func(_ *testing.T, c config.Config) string { return c.MetricsEvery().String() },
	"receipts": func(t *testing.T, c config.Config) string {
		f := newFleet(t, 1, func(to *config.Config) { to.Receipts = c.Receipts })
		for range 3 {
			f.ask("hello", "")
		}
		return fmt.Sprint(len(f.router.sched.Receipts(nil, 0)))
	},
}

func engineEffect(t *testing.T, c config.Config) string {
	ix, err := c.Engines[0].Index()
	return fmt.Sprint(ix, err)
}

// Each setting that is no policy's (policy.TestEverySettingActs has those) has a test
// that turns it.
func TestEverySettingIsTurned(t *testing.T) {
	for _, x := range unturned {
		if turned[x] != "" {
			t.Errorf("%s is turned, and in the list of those that aren't", x)
		}
		turned[x] = "nobody"
		defer delete(turned, x)
	}
	for _, s := range setting.List(new(config.Config)) {
		if setting.Group(s.Field.Type) || strings.HasPrefix(s.Path, "policy.") {
			continue
		}
		switch by := turned[s.Path]; by {
		case "":
			t.Errorf("%s has no test that turns it: write one and name it in turned", s.Path)
		case "nobody":
		case "here":
			turn(t, s)
		default:
			speaks(t, s, by)
		}
	}
}

// turn compares what a setting does at its default and at its example.
func turn(t *testing.T, s setting.Setting) {
	t.Helper()
	value := s.Other()
	if s.Path == "receipts" {
		value = "1"
	}
	c := config.Defaults()
	c.Engines = []config.Engine{config.NewEngine("http://a:1")}
	before := effects[s.Path](t, c)
	path, to := s.Path, any(&c)
	if k, ok := strings.CutPrefix(path, "engines[]."); ok {
		path, to = k, any(&c.Engines[0])
	}
	if err := setting.Put(to, path, value); err != nil {
		t.Fatal(err)
	}
	if after := effects[s.Path](t, c); after == before {
		t.Errorf("%s: %s: %s, as at the default", s.Path, value, after)
	}
}

// speaks looks whether the test is there and speaks of the field.
func speaks(t *testing.T, s setting.Setting, by string) {
	t.Helper()
	pkg, test, _ := strings.Cut(by, ".")
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, body, ok := strings.Cut(string(text), "\nfunc "+test+"(")
		if body, _, _ = strings.Cut(body, "\n}\n"); !ok {
			continue
		}
		if !regexp.MustCompile(`\b` + s.Field.Name + `\b`).MatchString(body) {
			t.Errorf("%s: %s doesn't speak of %s", s.Path, by, s.Field.Name)
		}
		return
	}
	t.Errorf("%s: there is no %s", s.Path, by)
}
