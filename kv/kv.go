// Package kv holds the words that every other package speaks: what a block is,
// where it lives, who holds it, and what an engine says about its cache. It has
// no behaviour but the chained hash (hash.go), imports the standard library
// only, and performs no I/O.
package kv

import "fmt"

// A Target is the unit of choice: one data-parallel rank of one replica. Targets
// are small dense integers handed out by package fleet, so that sets of holders
// are bitsets and the hot path has no strings. A number is reused only after
// index and ledger have forgotten its former owner.
type Target uint16

// MaxTargets bounds Target: valid targets are 0 to MaxTargets-1.
const MaxTargets = 1024

// NoTarget is no target.
const NoTarget Target = 0xffff

// A Tier says where a block lives.
type Tier uint8

// The tiers, fastest first.
const (
	GPU  Tier = iota // the engine's own pool; "GPU" also on a CPU build of vLLM
	Host             // CPU memory of the engine's machine
	Disk             // anything slower: local disk, shared storage, external

	NumTiers = 3
)

func (t Tier) String() string {
	switch t {
	case GPU:
		return "gpu"
	case Host:
		return "host"
	case Disk:
		return "disk"
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// A Hash is our own chained hash of a block: it covers the block's tokens and
// everything before them, so equal hashes mean equal prefixes. It is never an
// engine's hash. See hash.go.
type Hash uint64

// A Handle is an engine's name for a block: its hash, normalised to 64 bits and
// otherwise opaque. It means something only within one (target, group).
type Handle uint64

// A Key is the name space of a prompt: equal tokens under different keys share
// no cache. The zero Key is the base model without adapter and salt.
type Key struct {
	Model string // name space of the base model; "" where eligibility alone separates models
	LoRA  string // name of the adapter, "" for the base model
	Salt  string // cache_salt of the request
}

// An Extra is content of one block that its tokens don't show: an image under
// placeholder tokens, a slice of embeddings. Equal tokens with different extras
// are different blocks.
type Extra struct {
	Block  int    // block number within the hashed tokens, from 0
	Digest uint64 // see Seed.Extra
}

// A Kind says what an Event reports.
type Kind uint8

// The kinds of events.
const (
	Stored  Kind = iota // blocks are now held
	Removed             // one physical copy of each block has gone
	Cleared             // the target's blocks of Tier (with AllTiers: of all tiers) have gone
)

// A Source says who reports.
type Source uint8

// The sources of events.
const (
	Engine   Source = iota // the engine itself: a fact
	Dispatch               // we sent a request there: a prediction, until the engine confirms it
)

// Attention is the kind of cache group that an event is about.
type Attention uint8

// The kinds of attention. Only Dense groups make prefixes.
const (
	Dense   Attention = iota // full, MLA and sink attention: a block is held or not
	Sliding                  // only the last Window tokens are kept
	Sparse                   // Mamba, chunked-local, unknown: never creates or removes a dense block
)

// An Event is one change of one target's cache. Slices belong to the sender and
// may be reused after Apply returns: who keeps them copies them.
type Event struct {
	Kind      Kind
	Source    Source
	Target    Target
	Tier      Tier
	AllTiers  bool // Cleared only
	Attention Attention
	Group     uint16 // cache group of a hybrid model, 0 otherwise
	Window    int32  // tokens; Sliding only
	BlockSize int32  // tokens per block; 0 if the event didn't say (placeholder of a lower tier)

	// What the engine calls the blocks, in order of the chain for Stored. Parent
	// is the handle of the block before the first; Root says there is none.
	Parent  Handle
	Root    bool
	Handles []Handle

	// What is in the blocks. Stored by an engine only; len(Tokens) is
	// len(Handles)*BlockSize for dense groups, anything for others.
	Tokens []uint32
	Key    Key
	Extras []Extra

	// Copies, where the engine tells (Removed, "remaining_copy_counts"): how
	// many copies of each handle are left. nil: not told.
	Copies []int32

	// Reused marks a re-announcement of blocks that are held already
	// (kv_cache_report_mode=full): hold, but don't count another copy.
	Reused bool

	// Hashes are the blocks of a Dispatch event, in order, in our own hashes.
	Hashes []Hash
}

// A Chain is a prompt in blocks of one size.
type Chain struct {
	BlockSize int
	Hashes    []Hash // of the full blocks; a partial tail has none
}

// A Prompt is a request's content as the index sees it.
type Prompt struct {
	Tokens int     // length in tokens
	Chains []Chain // one for each block size in use in the fleet
}

// An Overlap is what one target holds of a prompt, from its first token on
// without a hole, in tokens. The parts add up: Host begins where GPU ends, Disk
// where Host ends. The sum is at most the prompt's length - 1, since an engine
// computes at least one token.
type Overlap struct {
	GPU  int32
	Host int32
	Disk int32
	// Predicted is what GPU would gain if the blocks of dispatched requests,
	// not yet reported by the engine, were there already. It overlaps Host and Disk.
	Predicted int32
}

// Held returns the tokens held in any tier.
func (o Overlap) Held() int { return int(o.GPU) + int(o.Host) + int(o.Disk) }

// Trust says how far the index can be believed about a target.
type Trust uint8

// The states of trust.
const (
	Unknown Trust = iota // no events yet
	Filling              // attached late or just loaded: what we know is true, but not all
	Exact                // every event since the engine's start, or since a clear, was applied
	Stale                // events were lost and could not be replayed
	Blind                // events are off, or the connection is down longer than the limit
)

var trustNames = [...]string{"unknown", "filling", "exact", "stale", "blind"}

func (t Trust) String() string {
	if int(t) < len(trustNames) {
		return trustNames[t]
	}
	return fmt.Sprintf("trust(%d)", uint8(t))
}
