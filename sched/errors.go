package sched

import (
	"fmt"
	"strings"
	"time"

	"kvasir/policy"
)

// UnknownModelError says that no replica, in whatever state, serves the model.
type UnknownModelError struct {
	Model string
	Known []string // what is served
}

func (e *UnknownModelError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("model %q is not served here: no engine has told its models yet", e.Model)
	}
	return fmt.Sprintf("model %q is not served here; served: %s", e.Model, strings.Join(e.Known, ", "))
}

// UnavailableError says that the model is served, but no target can take the
// request now. The counts add up to Total.
type UnavailableError struct {
	Model                           string
	Total, Down, Draining, Excluded int
	Short                           int // their context is too short for it
}

func (e *UnavailableError) Error() string {
	short := ""
	if e.Short > 0 {
		short = fmt.Sprintf(", %d have too short a context for it", e.Short)
	}
	return fmt.Sprintf("model %q: none of its %d targets can take the request (%d down, %d draining, %d tried already%s)",
		e.Model, e.Total, e.Down, e.Draining, e.Excluded, short)
}

// ShedError says that the policy refuses the request under the present load.
type ShedError struct {
	policy.Refusal
	Priority int // of the request
}

func (e *ShedError) Error() string {
	switch {
	case e.Late && e.Alone > e.Deadline:
		return fmt.Sprintf("this request's prompt takes %v to compute, even on an idle engine: longer than its deadline of %v to the first token",
			e.Alone.Round(time.Millisecond), e.Deadline)
	case e.Late:
		return fmt.Sprintf("the fleet is overloaded: no engine could begin to answer before %v, and this request's deadline to the first token is %v; try again in %v",
			e.Soonest.Round(time.Millisecond), e.Deadline, e.Retry)
	case e.Priority < 0:
		return fmt.Sprintf("the fleet is overloaded, and this request's priority is low (%d); try again in %v", e.Priority, e.Retry)
	}
	return fmt.Sprintf("the fleet is overloaded, and this request is refused; try again in %v", e.Retry)
}
