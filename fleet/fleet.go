// Package fleet is the table of replicas and their ranks: who exists, what it
// serves, in which state it is. Readers take an immutable Snapshot by one atomic
// load; writers build the next one. How replicas are found is not its business.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/kv"
)

// Errors that callers branch on.
var (
	ErrDuplicate = errors.New("fleet: replica is in the table already")
	ErrUnknown   = errors.New("fleet: no such replica")
	ErrFull      = errors.New("fleet: no free target number")
)

// A State says whether a replica can be given work.
type State uint8

// The states of a replica.
const (
	Starting State = iota // never answered yet
	Up                    // answers, takes requests
	Draining              // answers, takes no new requests
	Down                  // does not answer
)

var stateNames = [...]string{"starting", "up", "draining", "down"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// An Order says which of two numbers an engine serves first that requests have as
// "priority".
type Order uint8

// The orders.
const (
	NoOrder   Order = iota // not known
	LowFirst               // as vLLM
	HighFirst              // as SGLang, unless it is told otherwise
)

// A Replica is one engine process. The values in a Snapshot are never changed:
// an update makes a new Replica.
type Replica struct {
	ID      int
	Name    string // for people and headers: host:port of the URL
	URL     string // base URL without a trailing slash
	State   State
	Reason  string    // why it is in this state, for people
	Since   time.Time // of the state
	Models  []kv.Model
	Version string // what the engine calls its version

	// Identity is a well-mixed hash of URL: the same in every router and after
	// every restart. Never 0.
	Identity uint64

	BlockSize int   // tokens; 0 while unknown
	MoreSizes []int // of the blocks of further cache groups that every hit needs too
	Blocks    int   // blocks of the GPU pool, per rank; 0 while unknown
	MaxBatch  int   // tokens that the engine computes in a step at most; 0 while unknown

	// Priorities is how the engine takes "priority" of requests.
	Priorities Order

	// FirstRank is what the engine calls its first rank: above 0 where several
	// processes share one data-parallel group.
	FirstRank int

	// Targets has the target of each rank, in order. A replica without data
	// parallelism has one.
	Targets []kv.Target
}

// Rank returns the rank of t in r, or -1.
func (r *Replica) Rank(t kv.Target) int { return slices.Index(r.Targets, t) }

// Serves returns the model called id, and whether r serves it.
func (r *Replica) Serves(id string) (kv.Model, bool) {
	for _, m := range r.Models {
		if m.ID == id {
			return m, true
		}
	}
	return kv.Model{}, false
}

// MaxLen returns how many tokens of prompt and answer r takes for the model called
// id, 0 if it doesn't say. Engines don't say it of adapters: the base model's counts.
func (r *Replica) MaxLen(id string) int {
	m, _ := r.Serves(id)
	if m.MaxLen == 0 && m.Parent != "" {
		m, _ = r.Serves(m.Parent)
	}
	return m.MaxLen
}

// A Snapshot is the fleet at one moment. It is immutable.
type Snapshot struct {
	Generation uint64
	Replicas   []*Replica // by ID

	byTarget []*Replica
	byModel  map[string]*Group
	groups   []*Group // by name
}

// A Group is everything that serves one model name.
type Group struct {
	Model      kv.Model
	Targets    []kv.Target // of replicas in every state, ascending
	BlockSizes []int       // in use by those replicas, ascending
	Shortest   int         // of the known context lengths of those replicas; 0: none is known
}

// Replica returns the replica that t belongs to, or nil.
func (s *Snapshot) Replica(t kv.Target) *Replica {
	if int(t) >= len(s.byTarget) {
		return nil
	}
	return s.byTarget[t]
}

// NumTargets returns one more than the highest target in use.
func (s *Snapshot) NumTargets() int { return len(s.byTarget) }

// Group returns what serves the model called id, or nil.
func (s *Snapshot) Group(id string) *Group { return s.byModel[id] }

// Groups returns every group, by model name.
func (s *Snapshot) Groups() []*Group { return s.groups }

// Named returns the replica called name, or nil.
func (s *Snapshot) Named(name string) *Replica {
	for _, r := range s.Replicas {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// A Table holds the current snapshot. The zero Table is empty and ready.
type Table struct {
	mu     sync.Mutex // serialises writers
	cur    atomic.Pointer[Snapshot]
	nextID int                   // guarded by mu
	held   [kv.MaxTargets]uint64 // guarded by mu; generation+1 in which the target was taken, 0: free
}

var empty = &Snapshot{}

// Snapshot returns the fleet as it is now. It never returns nil.
func (t *Table) Snapshot() *Snapshot {
	if s := t.cur.Load(); s != nil {
		return s
	}
	return empty
}

// Add puts a replica with one rank into the table, in state Starting, and
// returns it. rawURL is http or https with a host; a path is kept, so that
// engines behind a path prefix work. ErrDuplicate if its address is there already.
func (t *Table) Add(rawURL string, now time.Time) (*Replica, error) {
	base, name, err := CleanURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("engine %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.Snapshot()
	for _, r := range old.Replicas {
		if r.URL == base {
			return nil, fmt.Errorf("engine %q: %w as %s", rawURL, ErrDuplicate, r.Name)
		}
	}
	tg, err := t.take(1)
	if err != nil {
		return nil, fmt.Errorf("engine %q: %w (limit %d ranks)", rawURL, err, kv.MaxTargets)
	}
	r := &Replica{ID: t.nextID, Name: name, URL: base, Identity: identity(base), State: Starting, Reason: "not asked yet", Since: now, Targets: tg}
	t.nextID++
	t.publish(append(slices.Clone(old.Replicas), r))
	return r, nil
}

// identity is FNV-1a of s, finished so that all bits count.
func identity(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h = (h ^ h>>32) * 0x9e3779b97f4a7c15
	return max(h^h>>29, 1)
}

// CleanURL normalises what a person wrote as an engine's address: base to be dialled,
// and the replica's name. Its errors never show a password.
func CleanURL(raw string) (base, name string, err error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		var why *url.Error // its own text has the whole address
		if errors.As(err, &why) {
			err = why.Err
		}
		return "", "", fmt.Errorf("no URL (%v), want http://HOST:PORT", err)
	}
	shown := raw[strings.LastIndex(raw, "@")+1:] // without user and password
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", "", fmt.Errorf("%q, want http://HOST:PORT or https://HOST:PORT", shown)
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		return "", "", fmt.Errorf("%q with a user, query or fragment, want http://HOST:PORT alone", u)
	}
	host := strings.ToLower(u.Host)
	if u.Port() == "" {
		port := ":80"
		if u.Scheme == "https" {
			port = ":443"
		}
		host += port
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	path = strings.TrimSuffix(path, "/v1") // people paste OpenAI base URLs
	return u.Scheme + "://" + host + path, host + path, nil
}

// Update replaces the replica id by what edit makes of a copy of it. edit must
// not change ID, Name, URL or Targets, and must replace slices rather than
// write into them. It runs under the table's lock.
func (t *Table) Update(id int, edit func(*Replica)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	rs, i, err := t.find(id)
	if err != nil {
		return err
	}
	next := *rs[i]
	edit(&next)
	rs[i] = &next
	t.publish(rs)
	return nil
}

// SetRanks gives the replica n ranks and returns its targets, old ones first.
// Targets that it loses stay taken until Release.
func (t *Table) SetRanks(id, n int) (targets, lost []kv.Target, err error) {
	if n < 1 || n > kv.MaxTargets {
		return nil, nil, fmt.Errorf("fleet: %d ranks, want 1 to %d", n, kv.MaxTargets)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rs, i, err := t.find(id)
	if err != nil {
		return nil, nil, err
	}
	next := *rs[i]
	have := len(next.Targets)
	switch {
	case n == have:
		return next.Targets, nil, nil
	case n < have:
		lost = next.Targets[n:]
		next.Targets = slices.Clone(next.Targets[:n])
	default:
		more, err := t.take(n - have)
		if err != nil {
			return nil, nil, fmt.Errorf("engine %s: %d ranks: %w", next.Name, n, err)
		}
		next.Targets = append(slices.Clone(next.Targets), more...)
	}
	rs[i] = &next
	t.publish(rs)
	return next.Targets, lost, nil
}

// Remove takes a replica out of the table and returns its last value. Its targets
// stay taken until Release says that index and ledger have forgotten them.
func (t *Table) Remove(id int) (*Replica, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rs, i, err := t.find(id)
	if err != nil {
		return nil, err
	}
	r := rs[i]
	t.publish(slices.Delete(rs, i, i+1))
	return r, nil
}

// Release frees a target number that no replica has any more.
func (t *Table) Release(tg kv.Target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if int(tg) < len(t.held) && t.Snapshot().Replica(tg) == nil {
		t.held[tg] = 0
	}
}

// find returns a copy of the replicas and the place of id in it; caller holds mu.
func (t *Table) find(id int) ([]*Replica, int, error) {
	rs := slices.Clone(t.Snapshot().Replicas)
	i, ok := slices.BinarySearchFunc(rs, id, func(r *Replica, id int) int { return cmp.Compare(r.ID, id) })
	if !ok {
		return nil, 0, fmt.Errorf("replica %d: %w", id, ErrUnknown)
	}
	return rs, i, nil
}

// take finds n free target numbers, lowest first; caller holds mu.
func (t *Table) take(n int) ([]kv.Target, error) {
	out := make([]kv.Target, 0, n)
	for i := range t.held {
		if len(out) == n {
			break
		}
		if t.held[i] == 0 {
			out = append(out, kv.Target(i))
		}
	}
	if len(out) < n {
		return nil, ErrFull
	}
	for _, i := range out {
		t.held[i] = t.Snapshot().Generation + 1
	}
	return out, nil
}

// publish swaps in the next snapshot; caller holds mu and gives rs away.
func (t *Table) publish(rs []*Replica) {
	s := &Snapshot{Generation: t.Snapshot().Generation + 1, Replicas: rs, byModel: map[string]*Group{}}
	for _, r := range rs {
		for _, tg := range r.Targets {
			for int(tg) >= len(s.byTarget) {
				s.byTarget = append(s.byTarget, nil)
			}
			s.byTarget[tg] = r
		}
		for _, m := range r.Models {
			g := s.byModel[m.ID]
			if g == nil {
				g = &Group{Model: m}
				s.byModel[m.ID] = g
				s.groups = append(s.groups, g)
			}
			if m.MaxLen > g.Model.MaxLen {
				g.Model.MaxLen = m.MaxLen
			}
			if n := r.MaxLen(m.ID); n > 0 && (g.Shortest == 0 || n < g.Shortest) {
				g.Shortest = n
			}
			g.Targets = append(g.Targets, r.Targets...)
			for _, n := range append([]int{r.BlockSize}, r.MoreSizes...) {
				if n > 0 && !slices.Contains(g.BlockSizes, n) {
					g.BlockSizes = append(g.BlockSizes, n)
				}
			}
		}
	}
	for _, g := range s.groups {
		slices.Sort(g.Targets)
		slices.Sort(g.BlockSizes)
	}
	slices.SortFunc(s.groups, func(a, b *Group) int { return strings.Compare(a.Model.ID, b.Model.ID) })
	t.cur.Store(s)
}
