package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"kvasir/lab/sim"
)

func result(policy string, replicas int, seed uint64, e2e float64) sim.Result {
	return sim.Result{
		Input: "conv <b>", Policy: policy, Replicas: replicas, Profile: "8b", KVTokens: 1000, Seed: seed,
		HitRate: .5, TTFT: sim.Spread{Mean: e2e / 2, P50: .1, P95: 2, P99: 12}, E2E: sim.Spread{Mean: e2e}, DecodeCV: .2 * e2e,
		Curves: &sim.Curves{TTFT: []float64{0, .01, .5, e2e}, Load: [][]float64{{1, 2, 30000}, {0, 1, 2}}, Step: 5},
	}
}

func TestPage(t *testing.T) {
	rep := sim.Report{Version: 1, Runs: []sim.Result{
		result("slow", 4, 1, 4), result("slow", 4, 2, 6), result("fast", 4, 1, 1), result("fast", 8, 1, .8), result("slow", 8, 1, 3),
	}}
	var a, b bytes.Buffer
	if err := Write(&a, "Title & more", rep); err != nil {
		t.Fatal(err)
	}
	Write(&b, "Title & more", rep)
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("equal reports give different pages")
	}
	page := a.String()
	for _, want := range []string{"Title &amp; more", "conv &lt;b&gt;, 4 replicas", "means over 2 seed(s)", "5.00 s", "Cost of scale"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || strings.Contains(page, "<b>,") {
		t.Error("the page has numbers that can't be drawn, or text that was not escaped")
	}
	if i, j := strings.Index(page, ">fast<"), strings.Index(page, ">slow<"); i < 0 || j < 0 {
		t.Error("a policy is missing")
	}
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1) {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v in %.200s", err, svg)
			}
		}
	}
}

// Two inputs on two fleets each are two plots of scale.
func TestScales(t *testing.T) {
	var rep sim.Report
	for _, in := range []string{"a", "b"} {
		for _, n := range []int{4, 8} {
			x := result("p", n, 1, float64(n))
			x.Input = in
			rep.Runs = append(rep.Runs, x)
		}
	}
	if got := scales(split(rep.Runs)); len(got) != 2 || got[0].Policy != "a, profile 8b" {
		t.Errorf("%d plots, want one for each input", len(got))
	}
}

// Odd inputs draw an empty plot, and nothing panics.
func TestOddReports(t *testing.T) {
	odd := result("x", 1, 1, math.NaN())
	odd.Curves = &sim.Curves{}
	for i, rep := range []sim.Report{{}, {Runs: []sim.Result{{}}}, {Runs: []sim.Result{odd}}, {Stopped: true, Runs: []sim.Result{result("y", 1, 1, 0)}}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if err := Write(io.Discard, "", rep); err != nil {
				t.Error(err)
			}
		})
	}
}
