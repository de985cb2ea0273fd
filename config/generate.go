package config

//go:generate go run kvasir/config/gen -root ..
