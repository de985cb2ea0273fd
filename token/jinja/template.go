// Package jinja renders chat templates exactly as transformers renders them with jinja2 3.1: the
// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls, the generation tag,
// raise_exception, strftime_now and a tojson that is Python's json.dumps.
//
// A template is other people's code and a request is hostile. Compile bounds the size and nesting of
// the source; Render bounds steps, output and recursion and stops with an *Error. Values are
// Python's: order-preserving dicts, integers of any size, Python's printing of numbers and strings.
//
// What this engine knows it does differently from jinja2 fails with Error.Unsupported, never with
// other text, so that the caller can ask the engine instead.
package jinja

import (
	"time"
	"unsafe"
)

// Limits bounds one render.
type Limits struct {
	Steps  int // statements, calls and loop turns, plus one per 16 bytes of text made
	Output int // bytes
	Memory int // bytes of text and values made in all, whether they are still used or not
	Depth  int // calls of macros inside macros
}

// DefaultLimits lets pass what real conversations need (a turn takes some 50 steps) and stops a
// runaway template within about a second.
var DefaultLimits = Limits{Steps: 20_000_000, Output: 64 << 20, Memory: 512 << 20, Depth: 100}

// Env is what a render may know of the world.
type Env struct {
	// Now is the clock of strftime_now, in the zone of the engine that this router must agree with.
	Now    time.Time
	Limits Limits // the zero value means DefaultLimits
}

// Template is a compiled template; it is immutable and safe for concurrent use.
type Template struct {
	source   string
	body     []stmt
	fn       *funcScope
	ctxNames []string // names that a render may have to look up outside the template
	globals  []Value  // the value of each where the environment has one
	names    []*nameExpr
}

// Compile parses a template. The error is an *Error: a TemplateSyntaxError is one in jinja2 too.
func Compile(source string) (t *Template, err error) {
	defer catch(&err)
	root := &funcScope{}
	sc := newScope(root, nil)
	p := &parser{tokens: lex(source), scope: sc}
	body := p.statements()
	sc.hi = root.slots
	t = &Template{source: source, body: body, fn: root, names: p.names}
	index := map[string]int{}
	for _, n := range p.names {
		n.refs = n.scope.lookup(n.name)
		i, ok := index[n.name]
		if !ok {
			i = len(t.ctxNames)
			index[n.name] = i
			t.ctxNames = append(t.ctxNames, n.name)
			t.globals = append(t.globals, globals[n.name])
		}
		n.ctx = i
		if len(n.refs) == 1 && n.refs[0].up == 0 {
			n.local, n.refs = n.refs[0].slot, nil
			n.bound = true
		}
	}
	return t, nil
}

// Source gives the text that was compiled.
func (t *Template) Source() string { return t.source }

// Render runs the template over vars (messages, tools, add_generation_prompt, bos_token, ...). The
// error is an *Error.
func (t *Template) Render(vars *Dict, env Env) (string, error) {
	out, err := t.AppendRender(nil, vars, env)
	return string(out), err
}

// AppendRender is Render into dst, for callers that keep a buffer.
func (t *Template) AppendRender(dst []byte, vars *Dict, env Env) (out []byte, err error) {
	s := &state{out: dst, base: len(dst), limits: env.Limits, env: &env}
	if s.limits == (Limits{}) {
		s.limits = DefaultLimits
	}
	defer func() {
		if e, ok := err.(*Error); ok && e.Line == 0 {
			e.Line = s.line
		}
	}()
	defer catch(&err)
	s.ctx = make([]Value, len(t.ctxNames))
	for i, name := range t.ctxNames {
		if v := vars.Get(name); v.kind != KindMissing {
			s.ctx[i] = v
		} else {
			s.ctx[i] = t.globals[i]
		}
	}
	s.frame = &frame{slots: make([]Value, t.fn.slots)}
	s.run(t.body)
	s.checkOutput()
	return s.out, nil
}

// state is one render.
type state struct {
	out    []byte
	base   int
	ctx    []Value
	frame  *frame
	args   []Value // stack of the arguments of calls
	line   int
	steps  int
	memory int
	depth  int
	block  Value // the text that {% filter %} and {% set x | f %} work on
	limits Limits
	env    *Env
	free   map[*macroStmt][]*frame
}

// step counts n units of work against the limit.
func (s *state) step(n int) {
	if s.steps += n; s.steps > s.limits.Steps {
		failLimit("more than %d steps", s.limits.Steps)
	}
}

// charge counts the making of n bytes, or of n/16 values.
func (s *state) charge(n int) {
	if n > s.limits.Output {
		failLimit("a text of %d bytes; at most %d are accepted", n, s.limits.Output)
	}
	s.step(n >> 4)
	s.take(n)
}

// take counts n bytes of memory against the limit, before they are made.
func (s *state) take(n int) {
	if s.memory += n; s.memory > s.limits.Memory || n > s.limits.Memory {
		failLimit("more than %d bytes of text and values", s.limits.Memory)
	}
}

// makeValues counts the making of n values.
func (s *state) makeValues(n int) {
	if n > s.limits.Steps {
		failLimit("more than %d steps", s.limits.Steps)
	}
	s.step(n)
	s.take(n * int(unsafe.Sizeof(Value{})))
}

func (s *state) checkOutput() {
	if len(s.out)-s.base > s.limits.Output {
		failLimit("more than %d bytes of output", s.limits.Output)
	}
}

// run executes statements until one of them leaves the loop around them.
func (s *state) run(body []stmt) flow {
	for _, st := range body {
		if f := st.exec(s); f != goOn {
			return f
		}
	}
	return goOn
}

// capture runs statements and gives what they wrote.
func (s *state) capture(body []stmt) string {
	mark := len(s.out)
	s.run(body)
	text := string(s.out[mark:])
	s.out = s.out[:mark]
	s.charge(len(text))
	return text
}
