// Package replay is a load client: it plays a workload (package trace) against
// any OpenAI endpoint and measures what a user would feel.
//
//	rep, err := replay.Run(ctx, replay.Config{URL: "http://127.0.0.1:8080", Users: 12}, replay.Workload{Sessions: list}, progress)
//
// Two ways of playing:
//
//	open loop    each request starts at its recorded time divided by Speed,
//	             whether earlier ones have ended or not. Latencies count from
//	             the time at which a request was due, so a client that falls
//	             behind doesn't hide it (no coordinated omission).
//	closed loop  Users sessions at a time; a turn starts its think time after
//	             the turn before has ended; a user whose session is over takes
//	             the next one.
//
// Compare plays one workload on two endpoints in turn, and FitProfile measures one
// engine with a series of its own and fits the constants of package mock to it.
//
// Prompts are made of words (or token ids) such that equal block ids give equal
// text: prefixes are shared exactly as they were recorded.
package replay
