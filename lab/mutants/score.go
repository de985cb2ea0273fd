package main

import (
	"fmt"
	"io"
	"math"
)

// state is what became of a mutant.
type state string

const (
	killed    state = "killed"       // a test failed
	hung      state = "hung"         // the tests took many times what they take; killed too
	survived  state = "survived"     // all passed
	uncovered state = "not reached"  // no test runs the line: survived without a run
	broken    state = "not compiled" // go/types took it, the compiler didn't: not counted
)

// A score is one package's. Excused mutants count neither for it nor against it.
type score struct {
	Package  string
	Possible int // mutants in all, those that don't compile among them
	Seed     uint64
	Killed   int
	Survived int // without an excuse
	Excused  int // survivors that testdata/mutants.txt gives a reason for
	Percent  float64
	Seconds  float64
	Mutants  []*mutant
}

func (s *score) sum() {
	for _, m := range s.Mutants {
		switch {
		case m.State == killed || m.State == hung:
			s.Killed++
		case m.State == broken || m.State == "":
		case m.Excuse != "":
			s.Excused++
		default:
			s.Survived++
		}
	}
	s.Percent = 100
	if n := s.Killed + s.Survived; n > 0 {
		s.Percent = math.Round(1000*float64(s.Killed)/float64(n)) / 10
	}
}

// print lists the survivors, then the score.
func (s *score) print(w io.Writer, o *options) {
	for _, m := range s.Mutants {
		switch {
		case o.list:
			fmt.Fprintf(w, "%s:%d  %s\n%s\n\n", m.File, m.Line, m.Name, m.Diff)
		case (m.State == survived || m.State == uncovered) && m.Excuse == "":
			fmt.Fprintf(w, "%s: %s:%d\n%s\n  %s\n\n", m.State, m.File, m.Line, m.Diff, m.Name)
		case m.Excuse != "" && (m.State == killed || m.State == hung):
			fmt.Fprintf(w, "killed, so its excuse can go: %s\n\n", m.Name)
		}
	}
	if o.list {
		fmt.Fprintf(w, "%s: %d of %d possible mutants\n", s.Package, len(s.Mutants), s.Possible)
		return
	}
	fmt.Fprintf(w, "%s: %.1f %% killed (%d of %d; %d more excused, seed %d) in %.0f s\n",
		s.Package, s.Percent, s.Killed, s.Killed+s.Survived, s.Excused, s.Seed, s.Seconds)
}
