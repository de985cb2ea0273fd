package fleet

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
)

// Identities are the same in every router and after every restart: sessions that go by
// them move when they change. So these are values that were printed once.
func TestIdentityIsForGood(t *testing.T) {
	for url, want := range map[string]uint64{
		"http://a:80":          0x7d9ad16188794c1b,
		"http://b:80":          0x8c3cd3736362ecf1,
		"http://10.0.0.1:8000": 0x36f5aac80c90f3dd,
	} {
		if r := add(t, new(Table), url); r.Identity != want {
			t.Errorf("%s: %#016x, want %#016x", url, r.Identity, want)
		}
	}
}

func TestStatesHaveNames(t *testing.T) {
	for s, want := range map[State]string{Starting: "starting", Up: "up", Draining: "draining", Down: "down", 4: "state(4)", 200: "state(200)"} {
		if s.String() != want {
			t.Errorf("state %d is %q, want %q", uint8(s), s, want)
		}
	}
}

// A replica that was just added hasn't answered yet; numbers are never given twice.
func TestAddIsStarting(t *testing.T) {
	table := new(Table)
	a, b := add(t, table, "http://a:1"), add(t, table, "http://b:1")
	if a.State != Starting || a.Reason != "not asked yet" || !a.Since.Equal(now) || a.ID != 0 || b.ID != 1 {
		t.Errorf("%+v, %+v; want them starting, not asked yet, since now, numbered 0 and 1", a, b)
	}
	if _, err := table.Remove(b.ID); err != nil {
		t.Fatal(err)
	}
	if c := add(t, table, "http://c:1"); c.ID != 2 {
		t.Errorf("replica %d, want 2: 1 was another's", c.ID)
	}
}

// Serves, Rank, Named, Replica and NumTargets find what is there, and nothing else.
func TestLookups(t *testing.T) {
	table := new(Table)
	a, b := add(t, table, "http://a:1"), add(t, table, "http://b:1")
	if _, _, err := table.SetRanks(b.ID, 2); err != nil {
		t.Fatal(err)
	}
	lora := kv.Model{ID: "lora", Parent: "base", MaxLen: 7}
	if err := table.Update(b.ID, func(r *Replica) { r.Models = []kv.Model{{ID: "base"}, lora} }); err != nil {
		t.Fatal(err)
	}
	s := table.Snapshot()
	r := s.Named("b:1")
	if r == nil || r.ID != b.ID || s.Named("a:1").ID != a.ID || s.Named("c:1") != nil {
		t.Fatalf("named b:1: %+v, named c:1: %+v", r, s.Named("c:1"))
	}
	if m, ok := r.Serves("lora"); !ok || m != lora {
		t.Errorf("lora: %+v %v", m, ok)
	}
	if m, ok := r.Serves("nope"); ok || m != (kv.Model{}) {
		t.Errorf("nope: %+v %v, want no model", m, ok)
	}
	for tg, rank := range map[kv.Target]int{0: -1, 1: 0, 2: 1, 3: -1} {
		if got := r.Rank(tg); got != rank {
			t.Errorf("target %d has rank %d, want %d", tg, got, rank)
		}
	}
	if s.NumTargets() != 3 || s.Replica(2) != r || s.Replica(3) != nil || s.Replica(kv.NoTarget) != nil || new(Table).Snapshot().NumTargets() != 0 {
		t.Errorf("%d targets; 2 is %+v's, 3 is %+v's; want 3, b's and nobody's", s.NumTargets(), s.Replica(2), s.Replica(3))
	}
}

// Groups are sorted by name, their targets and block sizes ascending and once each;
// sizes that are unknown aren't among them, and the longest length counts.
func TestGroups(t *testing.T) {
	table := new(Table)
	for i, size := range []int{64, 16, 0, 16, 1} {
		r := add(t, table, "http://h"+string(rune('a'+i))+":1")
		if err := table.Update(r.ID, func(x *Replica) {
			x.BlockSize = size
			x.Models = []kv.Model{{ID: "z", Parent: "base", MaxLen: []int{100, 300, 200, 0, 0}[i]}}
			if i == 3 {
				x.Models = append(x.Models, kv.Model{ID: "a"})
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := table.SetRanks(0, 2); err != nil { // its targets are 0 and 5
		t.Fatal(err)
	}
	s := table.Snapshot()
	var names []string
	for _, g := range s.Groups() {
		names = append(names, g.Model.ID)
	}
	if !slices.Equal(names, []string{"a", "z"}) {
		t.Errorf("groups %v, want a and z", names)
	}
	g := s.Group("z")
	if !slices.Equal(g.Targets, []kv.Target{0, 1, 2, 3, 4, 5}) || !slices.Equal(g.BlockSizes, []int{1, 16, 64}) {
		t.Errorf("targets %v, want 0 to 5; block sizes %v, want 1, 16, 64", g.Targets, g.BlockSizes)
	}
	if g.Model != (kv.Model{ID: "z", Parent: "base", MaxLen: 300}) {
		t.Errorf("%+v, want z of base, 300 tokens long", g.Model)
	}
}

// The number of ranks is checked, and the same number changes nothing.
func TestSetRanks(t *testing.T) {
	table := new(Table)
	a := add(t, table, "http://a:1")
	for _, n := range []int{-1, 0, kv.MaxTargets + 1} {
		if tg, lost, err := table.SetRanks(a.ID, n); err == nil || !strings.Contains(err.Error(), "want 1 to 1024") || tg != nil || lost != nil {
			t.Errorf("%d ranks: %v %v %v, want an error that says 1 to 1024", n, tg, lost, err)
		}
	}
	if _, _, err := table.SetRanks(7, 1); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "replica 7") {
		t.Errorf("%v, want ErrUnknown that names replica 7", err)
	}
	before := table.Snapshot()
	tg, lost, err := table.SetRanks(a.ID, 1)
	if err != nil || lost != nil || !slices.Equal(tg, []kv.Target{0}) || table.Snapshot() != before {
		t.Errorf("%v %v %v; want target 0, nothing lost, the same snapshot", tg, lost, err)
	}
	add(t, table, "http://b:1")
	tg, lost, err = table.SetRanks(a.ID, kv.MaxTargets)
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "engine a:1: 1024 ranks") || tg != nil || lost != nil {
		t.Errorf("%v %v %v, want ErrFull that names a:1", tg, lost, err)
	}
	if n := len(table.Snapshot().Named("a:1").Targets); n != 1 {
		t.Errorf("a has %d ranks after what was refused, want 1", n)
	}
}

// Each change makes the next generation; one of a replica that isn't there makes none.
func TestGenerations(t *testing.T) {
	table := new(Table)
	a, b, c := add(t, table, "http://a:1"), add(t, table, "http://b:1"), add(t, table, "http://c:1")
	if g := table.Snapshot().Generation; g != 3 {
		t.Errorf("generation %d after three changes", g)
	}
	if err := table.Update(9, func(*Replica) {}); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v, want ErrUnknown", err)
	}
	r, err := table.Remove(b.ID)
	if err != nil || r == nil || r.Name != "b:1" {
		t.Errorf("removed %+v, %v; want b:1", r, err)
	}
	s := table.Snapshot()
	if s.Generation != 4 || len(s.Replicas) != 2 || s.Replicas[0].ID != a.ID || s.Replicas[1].ID != c.ID {
		t.Errorf("generation %d of %d replicas, want generation 4 of a and c", s.Generation, len(s.Replicas))
	}
	if _, err := table.Remove(a.ID); err != nil {
		t.Fatal(err)
	}
	if s := table.Snapshot(); len(s.Replicas) != 1 || s.Replicas[0].ID != c.ID {
		t.Errorf("%d replicas, want c alone", len(s.Replicas))
	}
	table.Release(kv.NoTarget) // nobody's: nothing happens
	table.Release(kv.MaxTargets)
	if err := table.Update(c.ID, func(x *Replica) { x.State, x.Since = Up, now.Add(time.Second) }); err != nil || table.Snapshot().Replicas[0].State != Up {
		t.Errorf("%v, state %v; want it up", err, table.Snapshot().Replicas[0].State)
	}
}

// What a person wrote wrongly is told, without what may be a secret and without saying
// it twice.
func TestBadAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"http://a:%zz":         `engine no URL (invalid port ":%zz" after host), want http://HOST:PORT`,
		"ftp://a:1":            `engine "ftp://a:1", want http://HOST:PORT or https://HOST:PORT`,
		"ftp://joe:pw@a:1":     `engine "a:1", want http://HOST:PORT or https://HOST:PORT`,
		"http://a:1#top":       `engine "http://a:1" with a user, query or fragment, want http://HOST:PORT alone`,
		"http://joe:pw@a:1":    `engine "http://a:1" with a user, query or fragment, want http://HOST:PORT alone`,
		"http://a:1/?token=pw": `engine "http://a:1/" with a user, query or fragment, want http://HOST:PORT alone`,
	} {
		if _, err := new(Table).Add(in, now); err == nil || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", in, err, want)
		}
	}
	for in, want := range map[string]string{"http://a": "http://a:80", "https://a/": "https://a:443", "https://a:8": "https://a:8"} {
		if r := add(t, new(Table), in); r.URL != want {
			t.Errorf("%s is %s, want %s", in, r.URL, want)
		}
	}
}
