package index

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"kvasir/kv"
)

const testSeed = kv.Seed(0x5eed)

// A model is what the index and its twin have in common.
type model interface {
	Apply(*kv.Event) Result
	Match(*kv.Prompt, []kv.Overlap)
	Forget(kv.Target)
	SetTarget(kv.Target, TargetConfig)
}

// content returns the tokens of blocks with the given labels: equal labels are
// equal content.
func content(labels []int, bs int) []uint32 {
	var out []uint32
	for _, l := range labels {
		for i := range bs {
			out = append(out, uint32(l*1000+i))
		}
	}
	return out
}

func extrasOf(labels []int, key string) (out []kv.Extra) {
	if key == "" {
		return nil
	}
	for i := range labels {
		out = append(out, kv.Extra{Block: i, Digest: testSeed.Extra(key, 0)})
	}
	return out
}

// TestScripts runs testdata/script: sequences of events with the answers that a
// person has checked. The twin has to give the same answers.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		var ix, tw model
		reset := func(c Config) {
			c.Seed = testSeed
			ix, tw = New(c), newTwin(c)
		}
		reset(Config{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			a := args{t, d}
			switch d.Cmd {
			case "reset":
				reset(Config{Orphans: a.num("orphans", 0), OrphansPerTarget: a.num("per-target", 0), MaxCopies: a.num("max-copies", 0)})
				return ""
			case "target":
				c := TargetConfig{}
				if s := a.str("copies", ""); s != "" {
					m, err := ParseCopyMode(s)
					if err != nil {
						return err.Error()
					}
					c.Copies = m
				}
				c.Tiers[kv.Host] = TierLimit{Blocks: a.num("host-blocks", 0), Events: a.num("host-events", 0)}
				ix.SetTarget(a.target(), c)
				tw.SetTarget(a.target(), c)
				return ""
			case "forget":
				ix.Forget(a.target())
				tw.Forget(a.target())
				return ""
			case "match":
				p := a.prompt()
				over, want := make([]kv.Overlap, 8), make([]kv.Overlap, 8)
				ix.Match(p, over)
				tw.Match(p, want)
				if !reflect.DeepEqual(over, want) {
					t.Errorf("%s: index says %v, twin says %v", d.Pos, over, want)
				}
				return formatOverlaps(over)
			}
			ev := a.event()
			got, want := ix.Apply(ev), tw.Apply(ev)
			if got != want {
				t.Errorf("%s: index says %+v, twin says %+v", d.Pos, got, want)
			}
			return formatResult(got)
		})
	})
}

func formatOverlaps(over []kv.Overlap) string {
	var b strings.Builder
	for i, o := range over {
		if o == (kv.Overlap{}) {
			continue
		}
		fmt.Fprintf(&b, "t%d", i)
		for _, f := range []struct {
			n string
			v int32
		}{{"gpu", o.GPU}, {"host", o.Host}, {"disk", o.Disk}, {"predicted", o.Predicted}} {
			if f.v != 0 {
				fmt.Fprintf(&b, " %s=%d", f.n, f.v)
			}
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func formatResult(r Result) string {
	var b strings.Builder
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		fmt.Fprintf(&b, " %s=%v", strings.ToLower(v.Type().Field(i).Name), v.Field(i).Interface())
	}
	if b.Len() == 0 {
		return "ok\n"
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// args reads the arguments of a line of a script.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) has(k string) bool { return a.d.HasArg(k) }

func (a args) str(k, def string) string {
	if a.has(k) {
		a.d.ScanArgs(a.t, k, &def)
	}
	return def
}

func (a args) num(k string, def int) int {
	if a.has(k) {
		a.d.ScanArgs(a.t, k, &def)
	}
	return def
}

func (a args) target() kv.Target { return kv.Target(a.num("t", 0)) }

// list reads k=(1,2,5..9).
func (a args) list(k string) (out []int) {
	for _, arg := range a.d.CmdArgs {
		if arg.Key != k {
			continue
		}
		for _, v := range arg.Vals {
			from, to, ranged := strings.Cut(v, "..")
			x, err := strconv.Atoi(from)
			if err != nil {
				a.d.Fatalf(a.t, "%s: %v", k, err)
			}
			y := x
			if ranged {
				if y, err = strconv.Atoi(to); err != nil {
					a.d.Fatalf(a.t, "%s: %v", k, err)
				}
			}
			for ; x <= y; x++ {
				out = append(out, x)
			}
		}
	}
	return out
}

func (a args) key() kv.Key { return kv.Key{LoRA: a.str("lora", ""), Salt: a.str("salt", "")} }

func (a args) tier() kv.Tier {
	switch s := a.str("tier", "gpu"); s {
	case "gpu":
		return kv.GPU
	case "host":
		return kv.Host
	case "disk":
		return kv.Disk
	default:
		a.d.Fatalf(a.t, "tier %q", s)
		return 0
	}
}

func (a args) prompt() *kv.Prompt {
	labels := a.list("content")
	bs := a.num("bs", 16)
	tokens := content(labels, bs)
	n := a.num("tokens", len(tokens)+1)
	p := &kv.Prompt{Tokens: n}
	for _, size := range append([]int{kv.ChainSize(bs)}, a.list("sizes")...) {
		hs := testSeed.Extend(nil, testSeed.Root(a.key(), size), tokens, size, extrasOf(labels, a.str("extra", "")))
		p.Chains = append(p.Chains, kv.Chain{BlockSize: size, Hashes: hs})
	}
	return p
}

func (a args) event() *kv.Event {
	ev := &kv.Event{Target: a.target(), Tier: a.tier(), Group: uint16(a.num("group", 0)), Reused: a.has("reused"), Key: a.key()}
	if a.has("sliding") {
		ev.Attention, ev.Window = kv.Sliding, int32(a.num("sliding", 0))
	}
	if a.has("sparse") {
		ev.Attention = kv.Sparse
	}
	for _, h := range a.list("handles") {
		ev.Handles = append(ev.Handles, kv.Handle(h))
	}
	for _, c := range a.list("copies") {
		ev.Copies = append(ev.Copies, int32(c))
	}
	bs := a.num("bs", 16)
	switch a.d.Cmd {
	case "stored":
		ev.Kind, ev.BlockSize = kv.Stored, int32(bs)
		ev.Root = !a.has("parent")
		ev.Parent = kv.Handle(a.num("parent", 0))
		labels := a.list("content")
		if labels == nil {
			labels = a.list("handles")
		}
		if !a.has("no-tokens") {
			ev.Tokens = content(labels, a.num("unit", bs))
			ev.Extras = extrasOf(labels, a.str("extra", ""))
		}
		if n := a.num("tokens", -1); n >= 0 {
			ev.Tokens = ev.Tokens[:n]
		}
	case "removed":
		ev.Kind = kv.Removed
	case "cleared":
		ev.Kind, ev.AllTiers = kv.Cleared, a.has("all")
	case "dispatch", "undispatch":
		ev.Source = kv.Dispatch
		if a.d.Cmd == "undispatch" {
			ev.Kind = kv.Removed
		}
		ev.Hashes = testSeed.Extend(nil, testSeed.Root(a.key(), bs), content(a.list("content"), bs), bs, nil)
	default:
		a.d.Fatalf(a.t, "unknown command %q", a.d.Cmd)
	}
	return ev
}
