package router

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kvasir/config"
	"kvasir/setting"
)

// turners are the tests that turn settings and see what each does: PACKAGE.TEST, and its
// settings. Those of policies are turned by policy.TestEverySettingActs.
var turners = map[string][]string{
	"router.TestListenersAreWhereTheySay":         {"listen", "admin"},
	"router.TestEnginesAndRanksAreAsConfigured":   {"engines[].url", "engines[].ranks"},
	"router.TestEventsAndReplayAreWhereTheySay":   {"engines[].events", "engines[].replay"},
	"router.TestEngineDialsUs":                    {"events_listen"},
	"router.TestIndexByItsSettings":               {"engines[].copies", "engines[].host_blocks", "engines[].disk_blocks", "index_bytes"},
	"router.TestSilentEngines":                    {"engines[].block_size"},
	"router.TestDrainLimitIsTold":                 {"drain"},
	"router.TestEnginesAreAskedEveryPoll":         {"poll_metrics", "poll"},
	"router.TestPolicyStateIsKept":                {"state"},
	"router.TestReceiptsAreKept":                  {"receipts"},
	"router.TestIndexIsKeptEvery":                 {"index_snapshot", "index_snapshot_every"},
	"router.TestReceiptsFile":                     {"receipts_file"},
	"router.TestTokensByMode":                     {"tokens.mode"},
	"router.TestReceiptsFileIsRotated":            {"receipts_file_bytes", "receipts_file_keep"},
	"router.TestLeaveTakesDrainGrace":             {"drain_grace"},
	"token.TestFirstRequestsAreCompared":          {"tokens.local.verify"},
	"token.TestBeginningsAreKeptWithinCacheBytes": {"tokens.local.cache_bytes"},
	"token.TestQuestionsEndByTimeout":             {"tokens.remote.timeout"},
	"token.TestQuestionsAtOnceAreBounded":         {"tokens.remote.concurrency"},
	"token.TestAnswersAreKeptWithinCacheBytes":    {"tokens.remote.cache_bytes"},
	"token.TestRenderIsLookedForAgain":            {"tokens.remote.retry"},
	"token/files.TestOrder":                       {"tokens.files.dirs"},
	"token/files.TestHubByItsSettings":            {"tokens.files.hub", "tokens.files.endpoint", "tokens.files.token_file", "tokens.files.cache"},
	"token/files.TestReposNameAnother":            {"tokens.files.repos"},
	"token/library.TestTemplateFollowsTheFlags":   {"tokens.template.harmony", "tokens.template.content_format", "tokens.template.default_kwargs", "tokens.template.trust_request", "tokens.template.exclude_tools_when_none", "tokens.template.tokenizer_mode", "tokens.template.zone"},
	"proxy.TestChunkedBodyTooLarge":               {"proxy.max_body"},
	"proxy.TestBodiesShareABudget":                {"proxy.max_bodies"},
	"proxy.TestConnectionsAreBounded":             {"proxy.max_conns"},
	"proxy.TestConnectionsOfAnAddressAreBounded":  {"proxy.max_conns_per_address"},
	"proxy.TestEjectShare":                        {"proxy.eject_share"},
	"proxy.TestEveryPhaseHasALimit":               {"proxy.first_token", "proxy.answer", "proxy.idle", "proxy.tokens", "proxy.body"},
	"proxy.TestHoldByItsSettings":                 {"proxy.hold_for", "proxy.hold_bytes"},
	"proxy.TestIdleConnectionsEndInTime":          {"proxy.idle_conn"},
	"proxy.TestRetryBudget":                       {"proxy.attempts", "proxy.retry_for", "proxy.retry_429"},
	"proxy.TestAnswerOnTheWire":                   {"proxy.explain"},
	"proxy.TestNoHeadersOfOurs":                   {"proxy.forwarded_for", "proxy.request_id"},
	"proxy.TestAskUsage":                          {"proxy.ask_usage"},
	"proxy.TestAdministrationIsNotReached":        {"proxy.pass"},
	"proxy.TestRoutingHeadersOfOthers":            {"proxy.strip"},
	"proxy.TestDialIsBounded":                     {"proxy.dial"},
	"proxy.TestRetryAfterIsTold":                  {"proxy.retry_after"},
}

// Each setting that is no policy's has a test that turns it.
func TestEverySettingIsTurned(t *testing.T) {
	turned := map[string]string{}
	for by, keys := range turners {
		for _, k := range keys {
			if turned[k] != "" {
				t.Errorf("%s stands twice", k)
			}
			turned[k] = by
		}
	}
	for _, s := range setting.List(new(config.Config)) {
		if setting.Group(s.Field.Type) || strings.HasPrefix(s.Path, "policy.") {
			continue
		}
		if by := turned[s.Path]; by == "" {
			t.Errorf("%s has no test that turns it: write one and name it in turners", s.Path)
		} else {
			speaks(t, s, by)
		}
		delete(turned, s.Path)
	}
	for k := range turned {
		t.Errorf("%s is no setting any more", k)
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
