package router

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"kvasir/config"
	"kvasir/lab/mockserver"
)

// TestUnequalContexts: two engines serve one model, one of them with a context of 512
// tokens.
func TestUnequalContexts(t *testing.T) {
	short := mockserver.Defaults()
	short.MaxLen = 512
	f := newFleetOf(t, []mockserver.Config{short, mockserver.Defaults()}, func(cfg *config.Config) { cfg.Policy.Name = "round_robin" })
	small := strings.TrimPrefix(f.engines[0].URL(), "http://")
	for _, c := range []struct {
		prompt, answer, code int
		small                int // of 4 requests
	}{
		{2000, 4, 200, 0},
		{500, 12, 200, 2},
		{500, 13, 200, 0},
		{200_000, 4, 400, 2}, // the engines' own answer
	} {
		there := 0
		for i := range 4 {
			ids := strings.TrimSuffix(strings.Repeat(fmt.Sprint(i+7, ","), c.prompt), ",")
			body := fmt.Sprintf(`{"model":"modelled-8b","prompt":[%s],"max_tokens":%d}`, ids, c.answer)
			resp, err := http.Post(f.router.URL()+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != c.code {
				t.Errorf("%d tokens, %d of answer: %d, want %d", c.prompt, c.answer, resp.StatusCode, c.code)
			}
			if resp.Header.Get("X-Kvasir-Replica") == small {
				there++
			}
		}
		if there != c.small {
			t.Errorf("%d tokens, %d of answer: %d of 4 went to the engine with 512, want %d", c.prompt, c.answer, there, c.small)
		}
	}
}
