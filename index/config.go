package index

import (
	"fmt"

	"kvasir/kv"
)

// CopyMode says what a removal means when several copies of a block were stored.
// Engines differ, and change between releases.
type CopyMode uint8

// The copy modes.
const (
	// Auto counts copies and obeys remaining_copy_counts where an event has them.
	Auto CopyMode = iota
	// Refcount counts copies: each removal takes one, the block goes with the
	// last (vLLM until now: every copy is announced and removed by itself).
	Refcount
	// LastCopy is for engines that send one removal, after the last copy has gone.
	LastCopy
	// FirstRemove forgets a block at its first removal, the most careful belief.
	FirstRemove
)

var copyModes = [...]string{"auto", "refcount", "last-copy", "first-remove"}

func (m CopyMode) String() string {
	if int(m) < len(copyModes) {
		return copyModes[m]
	}
	return fmt.Sprintf("copies(%d)", uint8(m))
}

// ParseCopyMode reads what String writes.
func ParseCopyMode(s string) (CopyMode, error) {
	for i, n := range copyModes {
		if n == s {
			return CopyMode(i), nil
		}
	}
	return Auto, fmt.Errorf("index: copies %q: want auto, refcount, last-copy or first-remove", s)
}

// drops says that one removal forgets the block whatever was counted.
func (m CopyMode) drops() bool { return m == LastCopy || m == FirstRemove }

// A TierLimit models a tier whose engine doesn't report removals. Zero fields
// don't limit.
type TierLimit struct {
	// Blocks is how many blocks of a target the tier can hold; storing one more
	// forgets the one that was stored longest ago.
	Blocks int
	// Events forgets a block when its target has sent that many events since the
	// block was stored last: a time to live without a clock.
	Events int
}

// TargetConfig says how to read one target's events.
type TargetConfig struct {
	Copies CopyMode
	Tiers  [kv.NumTiers]TierLimit
}

// Config bounds an Index. The zero value of every field but Seed stands for its
// default.
type Config struct {
	// Seed of the hash; everyone who hashes prompts for this index must use it.
	Seed kv.Seed
	// MaxBytes bounds the memory of blocks, handles and holders. At the bound
	// the blocks matched longest ago are forgotten, the deepest first.
	// Default 4 GiB (about 140 million blocks), least 1 MiB.
	MaxBytes int64
	// MaxCopies caps the count of physical copies of one block in one tier of
	// one target, so that a miscount can't pin it for long. Default 4096.
	MaxCopies int
	// Orphans bounds the blocks that wait for an unknown parent, in all;
	// OrphansPerTarget those of one target. The oldest events go first.
	// Defaults 262,144 and 32,768.
	Orphans          int
	OrphansPerTarget int
	// Target is how events are read unless SetTarget says otherwise.
	Target TargetConfig
}

// Limits and defaults of Config.
const (
	minBytes       = 1 << 20
	defaultBytes   = 4 << 30
	defaultCopies  = 4096
	defaultOrphans = 262144
	defaultPerTgt  = 32768
	maxTierBlocks  = 1 << 30
)

// withDefaults returns c with zero fields filled in.
func (c Config) withDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultBytes
	}
	if c.MaxCopies == 0 {
		c.MaxCopies = defaultCopies
	}
	if c.Orphans == 0 {
		c.Orphans = defaultOrphans
	}
	if c.OrphansPerTarget == 0 {
		c.OrphansPerTarget = min(defaultPerTgt, c.Orphans)
	}
	return c
}

// Validate returns an error that names the field, the value and the range.
func (c Config) Validate() error {
	if c.MaxBytes != 0 && c.MaxBytes < minBytes {
		return fmt.Errorf("index: MaxBytes %d: want 0 (default %d) or at least %d", c.MaxBytes, int64(defaultBytes), minBytes)
	}
	if c.MaxCopies < 0 || c.MaxCopies > 1<<30 {
		return fmt.Errorf("index: MaxCopies %d: want 0 (default %d) to %d", c.MaxCopies, defaultCopies, 1<<30)
	}
	if c.Orphans < 0 || c.Orphans > 1<<30 {
		return fmt.Errorf("index: Orphans %d: want 0 (default %d) to %d blocks", c.Orphans, defaultOrphans, 1<<30)
	}
	if c.OrphansPerTarget < 0 || c.OrphansPerTarget > 1<<30 {
		return fmt.Errorf("index: OrphansPerTarget %d: want 0 (default %d) to %d blocks", c.OrphansPerTarget, defaultPerTgt, 1<<30)
	}
	return c.Target.Validate()
}

// Validate returns an error that names the field, the value and the range.
func (c TargetConfig) Validate() error {
	if int(c.Copies) >= len(copyModes) {
		return fmt.Errorf("index: Copies %d: want auto, refcount, last-copy or first-remove (0 to %d)", c.Copies, len(copyModes)-1)
	}
	for t, l := range c.Tiers {
		if l.Blocks < 0 || l.Blocks > maxTierBlocks {
			return fmt.Errorf("index: Tiers[%v].Blocks %d: want 0 (no limit) to %d", kv.Tier(t), l.Blocks, maxTierBlocks)
		}
		if l.Events < 0 || l.Events > maxTierBlocks {
			return fmt.Errorf("index: Tiers[%v].Events %d: want 0 (no limit) to %d", kv.Tier(t), l.Events, maxTierBlocks)
		}
	}
	return nil
}
