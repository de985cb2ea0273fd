package proxy

import (
	"testing"
	"testing/synctest"
)

func TestStreamPassesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", stream(keepAlive, chatRole, chatA, keepAlive, chatB, chatUsage, chatDone))
		code, h, body := w.do("POST", chatPath, chatStream)
		if want := keepAlive + chatRole + chatA + keepAlive + chatB + chatUsage + chatDone; code != 200 || body != want {
			t.Fatalf("%d\n%q\nwant\n%q", code, body, want)
		}
		if h.Get("X-Kvasir-Replica") != "a:80" {
			t.Errorf("headers %v", h)
		}
		r := w.lastReceipt()
		if r.Outcome.String() != "completed" || r.Output != 4 || !r.Served || r.ServedPrompt != 158 || r.ServedCached != 128 {
			t.Errorf("receipt %+v", r)
		}
		w.idle()
	})
}
