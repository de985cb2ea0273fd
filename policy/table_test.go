package policy

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"kvasir/kv"
	"kvasir/policy/learn"
)

// Every row says all that there is to say: it is found by its name, builds, and its
// sections are sections of the configuration. Every section is read by some policy, or
// is a combinator's.
func TestTable(t *testing.T) {
	read := map[string]bool{}
	var cfg Config
	section := func(p any) string {
		v := reflect.ValueOf(&cfg).Elem()
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Type.Kind() == reflect.Struct && v.Field(i).Addr().Interface() == p {
				return f.Tag.Get("yaml")
			}
		}
		return ""
	}
	for i, r := range table {
		v := reflect.ValueOf(r)
		for k := range v.NumField() {
			if v.Field(k).IsZero() {
				t.Errorf("row %d, %q: no %s", i, r.name, v.Type().Field(k).Name)
			}
		}
		if t.Failed() {
			continue
		}
		if find(r.name) != &table[i] || Summary(r.name) != r.summary || Names()[i] != r.name {
			t.Errorf("%s: its name finds another row", r.name)
		}
		if i > 0 && table[i-1].name >= r.name {
			t.Errorf("%s stands behind %s: a person looks in the alphabet", r.name, table[i-1].name)
		}
		for _, s := range r.settings(&cfg) {
			if section(s) == "" {
				t.Errorf("%s reads %T, which is no section", r.name, s)
			}
			read[section(s)] = true
		}
		must(t, named(r.name), seeded(1))
	}
	for i, c := range combinators {
		v := reflect.ValueOf(c)
		for k := range v.NumField() {
			if v.Field(k).IsZero() {
				t.Fatalf("combinator %d: no %s", i, v.Type().Field(k).Name)
			}
		}
		s := section(c.settings(&cfg))
		if s == "" || read[s] {
			t.Errorf("combinator %d: section %q: want one of its own", i, s)
		}
		read[s] = true
		if c.enabled(&cfg) {
			t.Errorf("combinator %s is on in the zero configuration", s)
		}
		reflect.ValueOf(c.settings(&cfg)).Elem().FieldByName("Enabled").SetBool(true)
		if !c.enabled(&cfg) {
			t.Errorf("combinator %s is off though it is enabled", s)
		}
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		if f := reflect.TypeFor[Config]().Field(i); f.Type.Kind() == reflect.Struct && !read[f.Tag.Get("yaml")] {
			t.Errorf("nobody reads section %s", f.Tag.Get("yaml"))
		}
	}
}

// Settings that nothing reads are told, and no others.
func TestIdle(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Config)
		want []string
	}{
		{"auto", func(*Config) {}, nil},
		{"auto", func(c *Config) { c.Marginal.Kappa, c.HotPrefix.Hot = 2, 3 }, nil},
		{"marginal", func(c *Config) { c.Marginal.Kappa, c.HotPrefix.Hot = 2, 3 }, []string{"hot_prefix"}},
		{"dynamo", func(c *Config) { c.Marginal.Kappa, c.Dynamo.Temperature, c.Guard.Abs = 2, 1, 5 }, []string{"marginal", "guard"}},
		{"dynamo", func(c *Config) { c.Guard.Enabled, c.Guard.Abs = true, 5 }, nil},
		{"steer", func(c *Config) { c.Marginal.Evict, c.Steer.Phi = 1, 1 }, nil},
		{"session", func(c *Config) { c.LeastLoad.By = "tokens" }, nil},
		{"random", func(c *Config) { c.LeastLoad.By = "tokens" }, []string{"least_load"}},
	} {
		cfg := named(c.name)
		c.edit(&cfg)
		if got := Idle(cfg); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// heard is a policy that notes which of its methods are called. It doesn't embed Basic,
// so a new method of Policy doesn't compile before it is noted here too.
type heard struct{ calls map[string]int }

func (p *heard) Pick(*Request, []Candidate) int { p.calls["Pick"]++; return 0 }
func (p *heard) Shed(*Request, []Candidate, int) (Refusal, bool) {
	p.calls["Shed"]++
	return Refusal{Retry: 7}, true
}
func (p *heard) Placed(*Request, []Candidate, int) { p.calls["Placed"]++ }
func (p *heard) FirstToken(*kv.FirstToken)         { p.calls["FirstToken"]++ }
func (p *heard) Done(*kv.Done)                     { p.calls["Done"]++ }
func (p *heard) Forget(kv.Target)                  { p.calls["Forget"]++ }
func (p *heard) AppendState(dst []byte) []byte     { p.calls["AppendState"]++; return append(dst, '!') }
func (p *heard) LoadState([]byte) error            { p.calls["LoadState"]++; return nil }
func (p *heard) Terms() ([]string, string) {
	p.calls["Terms"]++
	return []string{"toll"}, "s"
}

func (p *heard) Learned(kv.Target) (learn.Learned, bool) {
	p.calls["Learned"]++
	return learn.Learned{Output: 7}, true
}

// calling calls a method of p with arguments that make sense, and returns the results.
func calling(t *testing.T, p Policy, m reflect.Method) []reflect.Value {
	t.Helper()
	req := &Request{Now: t0, Tokens: 100, SessionHash: 5}
	args := map[reflect.Type]any{
		reflect.TypeFor[*Request](): req, reflect.TypeFor[[]Candidate](): fleet(2), reflect.TypeFor[int](): 1,
		reflect.TypeFor[*kv.FirstToken](): &kv.FirstToken{Now: t0}, reflect.TypeFor[*kv.Done](): &kv.Done{Now: t0},
		reflect.TypeFor[kv.Target](): kv.Target(1), reflect.TypeFor[[]byte](): []byte("state"),
	}
	var in []reflect.Value
	for i := range m.Type.NumIn() {
		a, ok := args[m.Type.In(i)]
		if !ok {
			t.Fatalf("%s: say here what a %v is", m.Name, m.Type.In(i))
		}
		in = append(in, reflect.ValueOf(a))
	}
	return reflect.ValueOf(p).MethodByName(m.Name).Call(in)
}

// Whatever a combinator is told or asked reaches the policy inside, and what that says
// comes back.
func TestCombinatorsForward(t *testing.T) {
	cfg := Defaults()
	cfg.Shed.Deadline = time.Hour
	methods := reflect.TypeFor[Policy]()
	for i, c := range combinators {
		for k := range methods.NumMethod() {
			m := methods.Method(k)
			inner := &heard{map[string]int{}}
			p := c.wrap(&cfg, inner, func(n int) int { return n - 1 }) // so that nobody explores
			clear(inner.calls)
			got := calling(t, p, m)
			if inner.calls[m.Name] != 1 {
				t.Errorf("combinator %d, %T: %s reaches the policy inside %d times, want once", i, p, m.Name, inner.calls[m.Name])
			}
			want := calling(t, inner, m)
			for r := range want {
				if !reflect.DeepEqual(got[r].Interface(), want[r].Interface()) {
					t.Errorf("combinator %d, %T: %s says %v, the policy inside %v", i, p, m.Name, got[r], want[r])
				}
			}
		}
	}
}

// What goes to another policy for want of a key is told to that one.
func TestFallbacksAreTold(t *testing.T) {
	inner := &heard{map[string]int{}}
	cfg := Defaults()
	g := given{intn: lowestIndex, named: func(string) Policy { return inner }}
	holders := 0
	for _, r := range table {
		clear(inner.calls)
		p := r.build(&cfg, g)
		cands := fleet(2)
		req := &Request{Now: t0, Tokens: 100}
		p.Pick(req, cands)
		if inner.calls["Pick"] == 0 {
			continue
		}
		holders++
		p.Placed(req, cands, 1)
		p.Forget(1)
		if inner.calls["Placed"] != 1 || inner.calls["Forget"] != 1 {
			t.Errorf("%s: its fallback was told %v", r.name, inner.calls)
		}
		// With a key it isn't the fallback's.
		req.SessionHash, req.Hashes, req.BlockSize = 5, []kv.Hash{7}, 16
		clear(inner.calls)
		p.Pick(req, cands)
		p.Placed(req, cands, 1)
		if len(inner.calls) != 0 {
			t.Errorf("%s: its fallback was told %v of a request with a key", r.name, inner.calls)
		}
	}
	if holders != 4 {
		t.Errorf("%d policies fall back to another, want chwbl, hrw, prefix_hash and session", holders)
	}
}
