//go:build race

package index

// raceEnabled: under the race detector sync.Pool drops at random.
const raceEnabled = true
