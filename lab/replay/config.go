package replay

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"kvasir/lab/trace"
)

// A Shape is how prompts are put into requests.
type Shape string

// The shapes of prompts.
const (
	Chat Shape = "chat" // one user message of text, /v1/chat/completions
	Text Shape = "text" // a prompt of text, /v1/completions
	IDs  Shape = "ids"  // a prompt of token ids, /v1/completions: exact lengths under any tokenizer
)

// Config says where and how to play.
type Config struct {
	URL   string // base URL, with or without /v1
	Model string // "" asks GET /v1/models for the first
	Key   string // API key, sent as a bearer token

	Shape     Shape
	Writer    trace.Writer // of the prompts; its BlockTokens may be fewer than recorded: all lengths shrink alike
	IDRange   [2]uint32    // for IDs: token ids from [0] up to below [1]
	MaxInput  int          // longer prompts are left out (sessions end there); 0: no limit
	MaxOutput int          // answers are cut to this; 0: no limit

	Speed    float64       // open loop: how many times faster than recorded
	Users    int           // closed loop: sessions at a time
	Limit    int           // requests in all, 0: the whole workload
	MaxThink time.Duration // closed loop: longer pauses are cut; 0: no limit
	Timeout  time.Duration // of one request
	NextTurn bool          // closed loop: requests say when the session goes on (x-kvasir-next-turn)
}

// Defaults returns a configuration that needs only a URL.
func Defaults() Config {
	return Config{
		Shape: Chat, Writer: trace.Writer{BlockTokens: trace.BlockSize}, IDRange: [2]uint32{1000, 30_000},
		Speed: 1, Users: 8, MaxThink: time.Minute, Timeout: 10 * time.Minute,
	}
}

// Validate names the first field that is out of range.
func (c *Config) Validate() error {
	if !strings.HasPrefix(c.URL, "http://") && !strings.HasPrefix(c.URL, "https://") {
		return fmt.Errorf("url: %q, want http://HOST:PORT", c.URL)
	}
	switch c.Shape {
	case Chat, Text, IDs:
	default:
		return fmt.Errorf("shape: %q, want chat, text or ids", string(c.Shape))
	}
	if !(c.Speed > 0 && c.Speed <= 1e6) {
		return fmt.Errorf("speed: %v, want a factor above 0, up to 1000000", c.Speed)
	}
	if c.Users < 1 || c.Users > 100_000 {
		return fmt.Errorf("users: %d, want 1 to 100000", c.Users)
	}
	if c.Limit < 0 {
		return fmt.Errorf("limit: %d, want 0 (no limit) or more", c.Limit)
	}
	if c.Writer.BlockTokens < 1 || c.Writer.BlockTokens > 1<<20 {
		return fmt.Errorf("block-tokens: %d, want 1 to %d", c.Writer.BlockTokens, 1<<20)
	}
	if c.Shape == IDs && c.IDRange[1] <= c.IDRange[0] {
		return fmt.Errorf("id-range: %d to %d is empty", c.IDRange[0], c.IDRange[1])
	}
	if c.Timeout <= 0 {
		return fmt.Errorf("timeout: %v, want more than 0s", c.Timeout)
	}
	return nil
}

// A Workload is what to play: requests (open loop) or sessions (closed loop).
type Workload struct {
	Requests []trace.Request
	Sessions []trace.Session
}

var errEmpty = errors.New("the workload is empty: nothing to play")

// size returns how many requests there are to play.
func (w *Workload) size(limit int) int {
	n := len(w.Requests)
	for _, s := range w.Sessions {
		n += len(s.Turns)
	}
	if limit > 0 {
		n = min(n, limit)
	}
	return n
}
