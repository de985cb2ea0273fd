package sim

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"kvasir/model"
)

// The page stands alone, says every policy, escapes what comes from outside, and
// its pictures are well-formed.
func TestHTML(t *testing.T) {
	w := demoWorkload(t, 4, 12)
	w.name = `<b>"odd" & name</b>`
	var all Report
	for _, n := range []int{4} {
		r, err := Run(context.Background(), Config{Workload: w, Policies: []string{"round_robin", "dynamo", "marginal", "least_load", "session", "lmetric", "p2c", "random"},
			Replicas: n, Profile: model.ProfileDemo, Curves: true})
		if err != nil {
			t.Fatal(err)
		}
		all.Runs = append(all.Runs, r.Runs...)
		for _, x := range r.Runs { // a second fleet size, for the plot of scale
			x.Replicas, x.TTFT.Mean = 8, x.TTFT.Mean/2
			all.Runs = append(all.Runs, x)
		}
	}
	var b bytes.Buffer
	if err := WriteHTML(&b, all); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"marginal", "round_robin", "Hit rate against load balance", "Time to first token", "Load per replica", "Cost of scale", "&lt;b&gt;"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	for _, bad := range []string{"<script", "http://", "https://", "NaN", "Inf", `<b>"odd"`} {
		if strings.Contains(page, bad) {
			t.Errorf("%q in the page", bad)
		}
	}
	n := 0
	for rest := page; ; n++ {
		_, after, ok := strings.Cut(rest, "<svg")
		if !ok {
			break
		}
		svg, tail, ok := strings.Cut(after, "</svg>")
		if !ok {
			t.Fatal("unclosed picture")
		}
		rest = tail
		d := xml.NewDecoder(strings.NewReader("<svg" + svg + "</svg>"))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("picture %d: %v", n, err)
			}
		}
	}
	if n < 8 {
		t.Errorf("%d pictures", n)
	}
	if err := WriteHTML(io.Discard, Report{}); err != nil {
		t.Errorf("an empty report: %v", err)
	}
}
