// Package demo holds the small workload that `kvasir demo` plays: 24 coding-agent
// sessions of 12 requests each, cut out of recorded Claude Code sessions and
// scaled down 8 times, so that engines with small caches (model.ProfileDemo) show
// in seconds what real ones show in minutes. Licence and changes: Notice.
package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"

	"kvasir/lab/trace"
)

// Notice is the attribution that goes with the data: print or ship it wherever
// the data go.
//
//go:embed NOTICE
var Notice string

// Licence is the Apache License 2.0, under which the data are.
//
//go:embed LICENSE-APACHE-2.0.txt
var Licence string

//go:embed sessions.jsonl.gz
var sessions []byte

//go:generate go run gen.go weka_cc_sessions_512.jsonl.gz

// Users is how many sessions to keep going at a time on four engines of
// model.ProfileDemo: enough that round robin overflows the caches.
const Users = 12

// Sessions returns the workload; Think is in seconds of the demo's own time.
// Block ids stand for Session.BlockSize (64) tokens.
func Sessions() ([]trace.Session, error) {
	r, err := trace.NewReader(bytes.NewReader(sessions), "demo sessions", trace.Options{})
	if err != nil {
		return nil, err
	}
	var list []trace.Session
	for {
		s, err := r.NextSession()
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("embedded workload: %w", err)
		}
		list = append(list, s)
	}
}
