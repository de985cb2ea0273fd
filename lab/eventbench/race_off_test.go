//go:build !race

package eventbench

const raceEnabled = false
