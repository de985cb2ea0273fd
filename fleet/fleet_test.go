package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
)

var now = time.Unix(1_700_000_000, 0)

func add(t *testing.T, table *Table, url string) *Replica {
	t.Helper()
	r, err := table.Add(url, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ in, url, name string }{
		{"http://a:8000", "http://a:8000", "a:8000"},
		{" http://A:8000/ ", "http://a:8000", "a:8000"},
		{"http://a:8000/v1/", "http://a:8000", "a:8000"},
		{"https://a", "https://a:443", "a:443"},
		{"http://[::1]:80/x/", "http://[::1]:80/x", "[::1]:80/x"},
	} {
		if r := add(t, new(Table), c.in); r.URL != c.url || r.Name != c.name || r.Identity == 0 {
			t.Errorf("%q: %s called %s, want %s called %s", c.in, r.URL, r.Name, c.url, c.name)
		}
	}
	for _, bad := range []string{"", "a:8000", "tcp://a:1", "http://", "http://u:p@a:1", "http://a:1?x=y", "http://a:%zz"} {
		if r, err := new(Table).Add(bad, now); err == nil || !strings.Contains(err.Error(), "engine") {
			t.Errorf("%q: %+v, %v; want an error that names it", bad, r, err)
		}
	}
}

func TestDuplicates(t *testing.T) {
	table := new(Table)
	add(t, table, "http://a:8000")
	if _, err := table.Add("http://A:8000/v1", now); !errors.Is(err, ErrDuplicate) {
		t.Errorf("%v, want ErrDuplicate", err)
	}
}

// A target number comes back only when it was released.
func TestTargetsAreRecycledAfterRelease(t *testing.T) {
	table := new(Table)
	a := add(t, table, "http://a:1")
	now, lost, err := table.SetRanks(a.ID, 3)
	if err != nil || !slices.Equal(now, []kv.Target{0, 1, 2}) || lost != nil {
		t.Fatalf("%v %v %v", now, lost, err)
	}
	now, lost, err = table.SetRanks(a.ID, 1)
	if err != nil || !slices.Equal(now, []kv.Target{0}) || !slices.Equal(lost, []kv.Target{1, 2}) {
		t.Fatalf("%v %v %v", now, lost, err)
	}
	if b := add(t, table, "http://b:1"); b.Targets[0] != 3 {
		t.Errorf("target %d was given out before its release", b.Targets[0])
	}
	table.Release(1)
	table.Release(0) // in use: nothing happens
	if c := add(t, table, "http://c:1"); c.Targets[0] != 1 {
		t.Errorf("target %d, want 1", c.Targets[0])
	}
	if _, err := table.Remove(a.ID); err != nil {
		t.Fatal(err)
	}
	if r := table.Snapshot().Replica(0); r != nil {
		t.Errorf("target 0 is still %s's", r.Name)
	}
	if _, err := table.Remove(a.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v, want ErrUnknown", err)
	}
}

func TestFull(t *testing.T) {
	table := new(Table)
	a := add(t, table, "http://a:1")
	if _, _, err := table.SetRanks(a.ID, kv.MaxTargets); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Add("http://b:1", now); !errors.Is(err, ErrFull) {
		t.Errorf("%v, want ErrFull", err)
	}
	if _, _, err := table.SetRanks(a.ID, kv.MaxTargets+1); err == nil {
		t.Error("more ranks than targets were accepted")
	}
}

// A snapshot stays what it was, and groups follow models and block sizes.
func TestSnapshots(t *testing.T) {
	table := new(Table)
	for i, size := range []int{16, 64} {
		r := add(t, table, fmt.Sprintf("http://h%d:1", i))
		table.Update(r.ID, func(x *Replica) {
			x.State, x.BlockSize, x.Models = Up, size, []kv.Model{{ID: "m", MaxLen: 100 * (i + 1)}}
		})
	}
	old := table.Snapshot()
	g := old.Group("m")
	if g == nil || !slices.Equal(g.Targets, []kv.Target{0, 1}) || !slices.Equal(g.BlockSizes, []int{16, 64}) || g.Model.MaxLen != 200 {
		t.Fatalf("%+v", g)
	}
	table.Update(0, func(x *Replica) { x.State, x.Models = Down, nil })
	if old.Replicas[0].State != Up || len(old.Group("m").Targets) != 2 {
		t.Error("an update changed an old snapshot")
	}
	if s := table.Snapshot(); len(s.Group("m").Targets) != 1 || s.Generation <= old.Generation || s.Named("h1:1") == nil || s.Group("x") != nil {
		t.Errorf("%+v", s)
	}
}
