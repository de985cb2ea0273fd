package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Hints is what clients tell the router beside their prompts. The zero Hints is
// nothing, as in the reference. They reach product policies only.
type Hints struct {
	// MaxOutput: requests carry their recorded output length as max_tokens, as
	// `kvasir replay` sends it.
	MaxOutput bool
	// NextTurn is what sessions of a closed loop say of when they go on
	// (x-kvasir-next-turn): "" nothing; "exact" the think time that they will take;
	// "noisy" that times a log-normal factor of median 1 and sigma 0.5. The last
	// turn says nothing.
	NextTurn string
}

func (h *Hints) validate() error {
	switch h.NextTurn {
	case "", "exact", "noisy":
		return nil
	}
	return fmt.Errorf("sim: next turn is %q, must be exact, noisy or empty", h.NextTurn)
}

// say is what a client says of a think time.
func (h *Hints) say(think float64, doubt *rand.Rand) time.Duration {
	if h.NextTurn == "noisy" {
		think *= math.Exp(.5 * doubt.NormFloat64())
	}
	return max(time.Millisecond, time.Duration(think*float64(time.Second)))
}
