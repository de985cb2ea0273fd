package sched

import (
	"fmt"
	"strings"
	"time"
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
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("model %q: none of its %d targets can take the request (%d down, %d draining, %d tried already)",
		e.Model, e.Total, e.Down, e.Draining, e.Excluded)
}

// ShedError says that the policy refuses the request under the present load.
type ShedError struct {
	Retry time.Duration // when it may be tried again
}

func (e *ShedError) Error() string {
	return fmt.Sprintf("the fleet is overloaded, and this request's priority is low; try again in %v", e.Retry)
}
