package index

import (
	"slices"

	"kvasir/index/table"
	"kvasir/kv"
)

// A Reason says why an event changed nothing.
type Reason uint8

// The reasons for skipping an event, or blocks of it.
const (
	NotSkipped  Reason = iota
	BadTarget          // target, tier, kind or source out of range
	SparseGroup        // a group that makes no prefixes
	BadShape           // tokens, block size and handles don't fit each other
	Cycle              // a handle twice in one event, or its own parent
	NoTokens           // no tokens, and no handle is known: no position
	Full               // at a bound (groups of a target, sliding handles, memory)
	NumReasons
)

var reasons = [NumReasons]string{"", "bad-target", "sparse-group", "bad-shape", "cycle", "no-tokens", "full"}

func (r Reason) String() string { return reasons[min(r, NumReasons-1)] }

// A Result counts what an event did, in blocks.
type Result struct {
	Stored   int32 // newly held in the event's tier (or newly predicted)
	Copies   int32 // held already: another copy, or a re-announcement
	Removed  int32 // no longer held in the tier (or no longer predicted)
	Kept     int32 // a copy went, others remain
	Unknown  int32 // removals of what isn't held
	Orphaned int32 // wait for an unknown parent
	Joined   int32 // orphans whose parent came with this event
	Dropped  int32 // orphans thrown away: bound, clear, or removed while they waited
	Rebound  int32 // forgotten because their handle now names something else
	Expired  int32 // forgotten by a TierLimit
	Skipped  int32 // blocks of this event that were not applied, see Reason
	Reason   Reason
}

// maxBlockSize bounds the block size of an event; the largest seen is 2,176.
const maxBlockSize = 1 << 16

// maxGroups bounds the cache groups of a target.
const maxGroups = 32

// hasDuplicate says that a handle occurs twice in hs, or is its own parent.
func hasDuplicate(ev *kv.Event, seen *handleSet) bool {
	if !ev.Root {
		for _, h := range ev.Handles {
			if h == ev.Parent {
				return true
			}
		}
	}
	hs := ev.Handles
	if len(hs) <= 8 {
		for i, h := range hs {
			for _, g := range hs[:i] {
				if g == h {
					return true
				}
			}
		}
		return false
	}
	seen.reset(len(hs))
	for _, h := range hs {
		if !seen.add(h) {
			return true
		}
	}
	return false
}

// A handleSet finds duplicates in linear time without clearing its table: each
// use has a new stamp.
type handleSet struct {
	slots []stamped
	stamp uint64
	shift uint
}

type stamped struct {
	h     kv.Handle
	stamp uint64
}

func (s *handleSet) reset(n int) {
	size := 64
	for size < 2*n {
		size *= 2
	}
	if len(s.slots) < size {
		s.slots = make([]stamped, size)
		s.shift = 64
		for 1<<(64-s.shift) < size {
			s.shift--
		}
	}
	s.stamp++
}

func (s *handleSet) add(h kv.Handle) bool {
	mask := len(s.slots) - 1
	i := int(uint64(h) * 0x9e3779b97f4a7c15 >> s.shift)
	for {
		e := &s.slots[i&mask]
		if e.stamp != s.stamp {
			*e = stamped{h, s.stamp}
			return true
		}
		if e.h == h {
			return false
		}
		i++
	}
}

// A tagSet finds out whether a tag occurs twice in a list. Its first pass over the
// list needs one bit for a tag, in so little memory that it stays in the first
// cache; only tags that meet one there are compared.
type tagSet struct {
	seen  []uint64   // a bitmap by the low bits of tags
	met   [64]uint64 // a bitmap by the top bits of those that met another in seen
	equal []uint32   // tags that are in met
}

const mostSeen = 1 << 15 // words

func (s *tagSet) twice(tags []uint32) bool {
	words := 64
	for words < len(tags)/2 && words < mostSeen { // 32 to 64 bits for each
		words *= 2
	}
	if len(s.seen) < words {
		s.seen = make([]uint64, words)
	}
	seen := s.seen[:words]
	clear(seen)
	met := false
	for _, tag := range tags {
		w, bit := &seen[tag>>6&uint32(len(seen)-1)], uint64(1)<<(tag%64)
		if *w&bit != 0 {
			if !met {
				s.met, met = [64]uint64{}, true
			}
			top := tag >> (table.TagBits - 12)
			s.met[top/64%64] |= 1 << (top % 64)
		}
		*w |= bit
	}
	if !met {
		return false
	}
	s.equal = s.equal[:0]
	for _, tag := range tags {
		if top := tag >> (table.TagBits - 12); s.met[top/64%64]>>(top%64)&1 == 1 {
			s.equal = append(s.equal, tag)
		}
	}
	slices.Sort(s.equal)
	for i := 1; i < len(s.equal); i++ {
		if s.equal[i] == s.equal[i-1] {
			return true
		}
	}
	return false
}
