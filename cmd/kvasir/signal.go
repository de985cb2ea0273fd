package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// secondSignal returns a context that ends at the next interrupt or SIGTERM: a
// person who presses Ctrl-C twice doesn't want to wait.
func secondSignal(parent context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
}
