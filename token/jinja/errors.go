package jinja

import "fmt"

// Error is what a template, or the engine on its behalf, failed with.
type Error struct {
	// Type is the Python class that jinja2 would raise: TemplateError for raise_exception,
	// UndefinedError, TypeError, SecurityError, TemplateSyntaxError, ...
	Type    string
	Message string
	// Line is the line in the template, 0 when unknown.
	Line int
	// Limit is set when the sandbox stopped the template: too many steps, too much output, too deep.
	Limit bool
	// Unsupported is set when jinja2 might well succeed here and only this engine can't: the caller
	// renders remotely instead of reporting a refusal.
	Unsupported bool
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("template line %d: %s: %s", e.Line, e.Type, e.Message)
	}
	return fmt.Sprintf("template: %s: %s", e.Type, e.Message)
}

// fail stops the render. The panic is caught at the package's border, in Compile and Render: an
// error return from each of the hundred small operations would hide what they do.
func fail(pyType, format string, args ...any) {
	panic(&Error{Type: pyType, Message: fmt.Sprintf(format, args...)})
}

func failUnsupported(format string, args ...any) {
	panic(&Error{Type: "Unsupported", Unsupported: true, Message: fmt.Sprintf(format, args...)})
}

func failLimit(format string, args ...any) {
	panic(&Error{Type: "Limit", Limit: true, Message: fmt.Sprintf(format, args...)})
}

// catch turns a panic into an error. A run-time panic is a bug of this package; the template is
// other people's code, and a bug it finds must cost one remote render, not the router.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error:
		*err = r
	default:
		*err = &Error{Type: "Unsupported", Unsupported: true, Message: fmt.Sprintf("engine bug: %v", r)}
	}
}

func failAt(line int, pyType, format string, args ...any) {
	panic(&Error{Type: pyType, Message: fmt.Sprintf(format, args...), Line: line})
}
