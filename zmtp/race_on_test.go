//go:build race

package zmtp

const raceEnabled = true // memory figures mean nothing then
