//go:build ignore

// Gen cuts the sessions of this folder out of the Claude Code file:
//
//	go run gen.go weka_cc_sessions_512.jsonl.gz
package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"sort"

	"kvasir/lab/trace"
)

const (
	scale    = 8    // lengths are divided by this: a block id stands for 512/8 tokens
	sessions = 24   // in the file
	turns    = 12   // kept of each
	longest  = 6500 // scaled tokens
)

type turn struct {
	Think  float64  `json:"think"`
	Input  int      `json:"input"`
	Output int      `json:"output"`
	Blocks []uint64 `json:"blocks"`
}

type session struct {
	Session   int    `json:"session"`
	From      string `json:"from"`
	BlockSize int    `json:"block_size"`
	Turns     []turn `json:"turns"`
}

func main() {
	r, err := trace.Open(os.Args[1], trace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var list []session
	for {
		f, err := r.NextWeka()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		shared := min((f.Tool+f.Sys)/2/512, 64)
		s := session{From: f.ID, BlockSize: 512 / scale}
		for _, q := range f.Main[:min(turns, len(f.Main))] {
			n := q.Input / scale
			if n > longest {
				break
			}
			t := turn{Think: min(q.Think, 60) / 60, Input: n, Output: min(max(q.Output/scale, 4), 48)}
			for k := range min(len(q.Blocks), n/(512/scale)) {
				t.Blocks = append(t.Blocks, q.Blocks[k])
			}
			s.Turns = append(s.Turns, t)
		}
		if len(s.Turns) < turns || s.Turns[0].Input < 1200 {
			continue
		}
		base := uint64(len(list)+1) << 16
		for i := range s.Turns {
			for k, id := range s.Turns[i].Blocks {
				if k >= shared {
					s.Turns[i].Blocks[k] = base + id
				} else {
					s.Turns[i].Blocks[k] = uint64(k)
				}
			}
			s.Turns[i].Think = float64(int(s.Turns[i].Think*1000)) / 1000
		}
		list = append(list, s)
	}
	// Evenly over the lengths, so that the set is no pick of the easiest.
	sort.SliceStable(list, func(i, j int) bool { return list[i].Turns[turns-1].Input < list[j].Turns[turns-1].Input })
	var pick []session
	for i := range sessions {
		pick = append(pick, list[(2*i+1)*len(list)/(2*sessions)])
	}
	// In the order of the file again, not by length.
	sort.Slice(pick, func(i, j int) bool { return pick[i].From < pick[j].From })
	out, err := os.Create("sessions.jsonl.gz")
	if err != nil {
		log.Fatal(err)
	}
	z, _ := gzip.NewWriterLevel(out, 9)
	e := json.NewEncoder(z)
	requests, tokens := 0, 0
	for i := range pick {
		pick[i].Session = i
		for _, t := range pick[i].Turns {
			requests++
			tokens += t.Input
		}
		if err := e.Encode(pick[i]); err != nil {
			log.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		log.Fatal(err)
	}
	if err := out.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d sessions, %d requests, %d prompt tokens\n", len(pick), len(list), requests, tokens)
}
