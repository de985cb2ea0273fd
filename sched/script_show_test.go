package sched_test

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	"kvasir/kv"
	"kvasir/sched"
)

// receipt says why a request went where it went: the winner, then a line for each
// candidate that the receipt keeps.
func (s *script) receipt(r *sched.Receipt) {
	head := fmt.Sprintf("#%d: to %s", r.ID, s.names[r.Target])
	if r.Branch != "" {
		head += " (" + r.Branch + ")"
	}
	if r.Tokens > 0 {
		head += fmt.Sprintf(", %d of %d tokens are there", r.Overlap.Held(), r.Tokens)
	}
	if r.NumAll > r.NumKept {
		head += fmt.Sprintf("; %d of %d candidates", r.NumKept, r.NumAll)
	}
	s.say("%s", head)
	terms, _ := s.Costs()
	for _, c := range r.Candidates[:r.NumKept] {
		if host, _, _ := strings.Cut(s.names[c.Target], "/"); c.Replica != host+":80" {
			s.t.Errorf("%s: the receipt calls %s %q", s.d.Pos, s.names[c.Target], c.Replica)
		}
		line := fmt.Sprintf("%s cost=%.4g", s.names[c.Target], c.Cost)
		if len(terms) > 0 {
			var parts []string
			for i, name := range terms {
				parts = append(parts, fmt.Sprintf("%s=%.4g", name, c.Terms[i]))
			}
			line += " (" + strings.Join(parts, " ") + ")"
		}
		if c.Trust != kv.Unknown {
			line += " " + c.Trust.String()
		}
		if c.Overlap != (kv.Overlap{}) {
			line += " " + s.show(c.Overlap)
		}
		if l := c.Load; l.Requests > 0 {
			line += fmt.Sprintf(", owes %d requests, %d tokens to prefill", l.Requests, l.Prefill)
			if l.Wait > 0 {
				line += fmt.Sprintf(" in %v", l.Wait)
			}
		}
		s.say("  %s", line)
	}
}

// ended says what came of a request.
func (s *script) ended(r *sched.Receipt) string {
	came := sched.Receipt{
		ID: r.ID, Outcome: r.Outcome, FirstToken: r.FirstToken, Took: r.Took, Output: r.Output,
		Served: r.Served, ServedPrompt: r.ServedPrompt, ServedCached: r.ServedCached, Blocks: r.Blocks,
	}
	return "ended: " + s.show(came)
}

// whole says everything that a receipt has, but for the candidates.
func (s *script) whole(r *sched.Receipt) string {
	kept := *r
	kept.Candidates = [sched.ReceiptCandidates]sched.Candidate{}
	return s.show(kept)
}

// show prints the fields of a struct that are not zero, as name=value.
func (s *script) show(v any) string {
	var out []string
	x := reflect.ValueOf(v)
	for i := range x.NumField() {
		f := x.Type().Field(i)
		target0 := f.Type == reflect.TypeFor[kv.Target]() // is a target like any other
		if !f.IsExported() || x.Field(i).IsZero() && !target0 {
			continue
		}
		if f.Type.Kind() == reflect.Bool {
			out = append(out, kebab(f.Name))
		} else if val := s.value(x.Field(i).Interface()); val != "" {
			out = append(out, kebab(f.Name)+"="+val)
		}
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, " ")
}

func (s *script) value(v any) string {
	switch v := v.(type) {
	case kv.Target:
		return s.names[v]
	case time.Time:
		return v.Sub(start).String()
	case time.Duration:
		return v.String()
	case float64:
		return fmt.Sprintf("%.4g", v)
	case uint64:
		if v >= 1<<32 {
			return fmt.Sprintf("%016x", v)
		}
	case []byte:
		return fmt.Sprintf("%q", v)
	case []kv.Hash:
		return fmt.Sprintf("%d:%016x", len(v), uint64(v[len(v)-1]))
	case [sched.ReceiptCandidates]sched.Candidate:
		return ""
	}
	if x := reflect.ValueOf(v); x.Kind() == reflect.Struct {
		return "{" + s.show(v) + "}"
	}
	return fmt.Sprint(v)
}

// kebab turns MaxBatch into max-batch.
func kebab(name string) string {
	var b strings.Builder
	for i, c := range name {
		if i > 0 && unicode.IsUpper(c) && !unicode.IsUpper(rune(name[i-1])) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
