package seq

import "time"

// Config is the Machine's. The zero value means no replay and the defaults.
type Config struct {
	Replay        bool           // the publisher has a replay service
	ReplayTimeout time.Duration  // until the first answer; default 5 s
	AnswerTimeout time.Duration  // between two answers; default 1 s
	Backoff       time.Duration  // before a failed replay is tried again, doubling; default 1 s
	MaxBackoff    time.Duration  // default 60 s
	ProbeAfter    time.Duration  // of silence: ask whether there is more; doubling while there isn't; default 10 s
	BlindAfter    time.Duration  // a connection down for longer makes the target blind; default 30 s
	HoldBatches   int            // live batches kept while a replay runs; default 8192
	HoldBytes     int            // and their bytes; default 16 MiB
	Jitter        func() float64 // 0 to 1; nil: always 0.5
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.ReplayTimeout, 5*time.Second)
	def(&c.AnswerTimeout, time.Second)
	def(&c.Backoff, time.Second)
	def(&c.MaxBackoff, time.Minute)
	def(&c.ProbeAfter, 10*time.Second)
	def(&c.BlindAfter, 30*time.Second)
	if c.HoldBatches <= 0 {
		c.HoldBatches = 8192
	}
	if c.HoldBytes <= 0 {
		c.HoldBytes = 16 << 20
	}
	if c.Jitter == nil {
		c.Jitter = func() float64 { return 0.5 }
	}
	return c
}

// Stats counts what happened since the Machine was made.
type Stats struct {
	Applied    uint64 // batches
	Duplicates uint64 // batches that came again
	Foreign    uint64 // batches of an older connection, answers to an older replay, or numbered End
	Gaps       uint64 // times that a number was missing
	Restarts   uint64 // of the publisher's process
	Replays    uint64 // asked for
	Probes     uint64 // of those, after a silence
	Failed     uint64 // of those, not answered or broken off
	Forgets    uint64
	Dropped    uint64 // live batches that found no room while a replay ran
}
