package setting

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"
)

type inner struct {
	Rate *float64 `yaml:"rate,omitempty" range:"0..1"`
	Size int64    `yaml:"size" default:"4Ki" range:"1Ki..1Gi"`
}

func (in *inner) Check() error {
	if in.Size == 5000 {
		return &Error{Key: "size", Value: "5000", Want: "any other"}
	}
	return nil
}

type outer struct {
	Word  string        `yaml:"word" default:"a" oneof:"a|b"`
	Name  string        `yaml:"name" oneof:"*"`
	Wait  time.Duration `yaml:"wait" default:"90s" range:"1s..1h" or:"0s: for ever"`
	Share float64       `yaml:"share" default:"0.5" range:"0.."`
	On    bool          `yaml:"on" default:"true"`
	In    inner         `yaml:"in"`
	Known struct {
		X float64 `yaml:"x" range:"1..2"`
		Y float64 `yaml:"y" range:"1..2"`
	} `yaml:"known" optional:"true"`
	List   []inner `yaml:"list"`
	Hidden int     // no key: not a setting
}

func (outer) Choices(key string) []string { return []string{"", "the " + key} }

func TestFill(t *testing.T) {
	got := Defaults[outer]()
	if got.Word != "a" || got.Wait != 90*time.Second || got.Share != .5 || !got.On || got.In.Size != 4096 || got.In.Rate != nil || got.Hidden != 0 {
		t.Errorf("%+v", got)
	}
}

// An error names the key with its path, the value, and what is accepted; the
// bounds themselves are accepted.
func TestCheck(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		edit func(*outer)
		want string
	}{
		{func(o *outer) {}, ""},
		{func(o *outer) { o.Word = "aa" }, `x.word: "aa", want a or b (did you mean "a"?)`},
		{func(o *outer) { o.Word = "" }, `x.word: "", want a or b`},
		{func(o *outer) { o.Name = "the nome" }, `x.name: "the nome", want "" or the name (did you mean "the name"?)`},
		{func(o *outer) { o.Name = "the name" }, ""},
		{func(o *outer) { o.Wait = 0 }, ""},
		{func(o *outer) { o.Wait = time.Second }, ""},
		{func(o *outer) { o.Wait = time.Hour }, ""},
		{func(o *outer) { o.Wait = time.Hour + 1 }, "x.wait: 1h0m0.000000001s, want 0s (for ever) or 1s to 1h"},
		{func(o *outer) { o.Wait = time.Millisecond }, "x.wait: 1ms, want 0s (for ever) or 1s to 1h"},
		{func(o *outer) { o.Share = -.1 }, "x.share: -0.1, want at least 0"},
		{func(o *outer) { o.Share = math.Inf(1) }, "x.share: +Inf, want at least 0"},
		{func(o *outer) { o.Share = math.NaN() }, "x.share: NaN, want at least 0"},
		{func(o *outer) { o.Share = math.MaxFloat64 }, ""},
		{func(o *outer) { o.In.Rate = at(1) }, ""},
		{func(o *outer) { o.In.Rate = at(1.01) }, "x.in.rate: 1.01, want 0 to 1"},
		{func(o *outer) { o.In.Size = 1023 }, "x.in.size: 1023, want 1024 to 1073741824"},
		{func(o *outer) { o.In.Size = 5000 }, "x.in.size: 5000, want any other"},
		{func(o *outer) { o.Known.X = 1 }, "x.known.y: 0, want 1 to 2"},
		{func(o *outer) { o.List = []inner{{Size: 2048}, {Size: 7}} }, "x.list[1].size: 7, want 1024 to 1073741824"},
	} {
		o := Defaults[outer]()
		c.edit(&o)
		err := Check("x.", &o)
		var e *Error
		switch {
		case c.want == "" && err != nil:
			t.Error(err)
		case c.want != "" && (!errors.As(err, &e) || err.Error() != c.want):
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestList(t *testing.T) {
	var got []string
	for _, s := range List(new(outer)) {
		got = append(got, s.Path)
	}
	want := []string{"word", "name", "wait", "share", "on", "in", "in.rate", "in.size", "known", "known.x", "known.y", "list", "list[].rate", "list[].size"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNearest(t *testing.T) {
	words := []string{"first_token", "hold_for", "idle"}
	for text, want := range map[string]string{"first-token": "first_token", "first_tokn": "first_token", "idel": "idle", "hold": "", "": ""} {
		if got := Nearest(text, words); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 2 * time.Minute: "2m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Millisecond: "10ms", 70 * time.Minute: "1h10m", 3600*time.Second + 1: "1h0m0.000000001s"} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
		if back, err := time.ParseDuration(want); err != nil || back != d {
			t.Errorf("%s is read as %v, %v", want, back, err)
		}
	}
}
