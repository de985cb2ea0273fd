//go:build race

package eventbench

const raceEnabled = true // everything takes ten times as long
