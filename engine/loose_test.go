package engine

import (
	"context"
	"net/http"
	"reflect"
	"testing"
	"time"

	"kvasir/kv"
)

// One odd field in the list of models costs that field, not the engine.
func TestOddFieldsOfModels(t *testing.T) {
	for doc, want := range map[string][]kv.Model{
		`{"data":[{"id":"m","max_model_len":4096.0,"parent":{},"root":7,"owned_by":[]}]}`: {{ID: "m", MaxLen: 4096}},
		`{"data":[{"id":"m","max_model_len":"long","parent":null}]}`:                      {{ID: "m"}},
		`{"data":[{"id":5},{"id":"m","max_model_len":-1}]}`:                               {{ID: "m"}},
		`{"data":[{"id":"m","max_model_len":1e300}]}`:                                     {{ID: "m"}},
	} {
		w := newWorld()
		w.http["e:1"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte(doc)) })
		c := client{base: "http://e:1", http: &http.Client{Transport: w}, timeout: time.Minute}
		if got, _, err := c.models(context.Background()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", doc, got, err, want)
		}
	}
}
