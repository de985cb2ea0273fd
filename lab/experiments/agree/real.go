package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"kvasir/config"
	"kvasir/lab/mock"
	"kvasir/lab/mockserver"
	"kvasir/lab/replay"
	"kvasir/lab/trace"
	"kvasir/router"
)

// play plays the requests in real time, with engines whose blocks are the trace's.
func play(ctx context.Context, o options, p mock.Profile, list requests, name string) (rep *replay.Report, err error) {
	cfg := config.Defaults()
	cfg.Listen, cfg.Admin, cfg.Policy.Name = "127.0.0.1:0", "off", o.policy
	for range o.replicas {
		ec := mockserver.Defaults()
		ec.Profile, ec.BlockSize = p, trace.BlockSize
		e, err := mockserver.New(ec)
		if err != nil {
			return nil, err
		}
		if err := e.Start(); err != nil {
			return nil, err
		}
		defer e.Close()
		cfg.Engines = append(cfg.Engines, config.NewEngine(e.URL()))
	}
	life, end := context.WithCancel(ctx)
	r, err := router.New(cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), "agree")
	if err != nil {
		end()
		return nil, err
	}
	defer func() { end(); r.Close() }()
	if err := r.Start(life); err != nil {
		return nil, err
	}
	if err := r.Ready(ctx, o.replicas, 30*time.Second); err != nil {
		return nil, err
	}
	rc := replay.Defaults()
	rc.URL, rc.Shape, rc.Speed, rc.Timeout = r.URL(), replay.IDs, o.speed/o.slow, time.Hour
	rc.IDRange = [2]uint32{0, 4000}
	return replay.Run(ctx, rc, replay.Workload{Requests: list}, func(done, total int, s *replay.Sample) {
		if done%25 == 0 || s.Err != "" {
			fmt.Fprintf(os.Stderr, "%s%d of %d %s\n", name, done, total, s.Err)
		}
	})
}
