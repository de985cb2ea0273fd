package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// secondSignal returns a context that ends at the next interrupt or SIGTERM: a
// person who presses Ctrl-C twice doesn't want to wait.
func secondSignal(parent context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
}

// byPerson reports whether ctx has ended by Ctrl-C: there is no load balancer to notice.
func byPerson(ctx context.Context) bool {
	return strings.HasPrefix(context.Cause(ctx).Error(), os.Interrupt.String())
}

// ignoreHangups keeps SIGHUP, which log rotation and terminals send, from ending the
// process in the middle of its streams. It returns what ends that.
func ignoreHangups(log *slog.Logger) (stop func()) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-hup:
				log.Warn("SIGHUP: nothing is reloaded while running; restart for a changed configuration (SIGTERM drains)")
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(hup); close(done) }
}
