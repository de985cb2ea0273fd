package jinja

import (
	"fmt"
	"strings"
)

// maxNesting bounds the depth of the tree, and with it the recursion that runs it.
const maxNesting = 100

// parser builds the tree. Precedence and odd corners are those of jinja2 3.1's parser.
type parser struct {
	tokens []token
	pos    int
	scope  *scope
	names  []*nameExpr
	soft   int // inside an if: unknown filters and tests fail when reached, not at once
	depth  int
	open   []string // block tags that wait for their end
	needle []string // the tags that end the innermost of them
}

func (p *parser) cur() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

func (p *parser) is(kind tokenKind, val string) bool {
	t := p.tokens[p.pos]
	return t.kind == kind && t.val == val
}

func (p *parser) isOp(op string) bool     { return p.is(tokOp, op) }
func (p *parser) isName(name string) bool { return p.is(tokName, name) }

func (p *parser) skip(kind tokenKind, val string) bool {
	if p.is(kind, val) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipOp(op string) bool     { return p.skip(tokOp, op) }
func (p *parser) skipName(name string) bool { return p.skip(tokName, name) }

func (p *parser) fail(format string, args ...any) {
	failAt(p.cur().line, "TemplateSyntaxError", format, args...)
}

// describe names a token as jinja2's messages do.
func (t token) describe() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokBlockEnd:
		return "end of statement block"
	case tokVarEnd:
		return "end of print statement"
	case tokBlockBegin:
		return "begin of statement block"
	case tokData:
		return "template data / text"
	}
	return t.val
}

func (p *parser) expectOp(op string) {
	if !p.skipOp(op) {
		if p.cur().kind == tokEOF {
			p.fail("unexpected end of template, expected '%s'.", op)
		}
		p.fail("expected token '%s', got '%s'", op, p.cur().describe())
	}
}

func (p *parser) expectName() string {
	if p.cur().kind != tokName {
		p.fail("expected token 'name', got '%s'", p.cur().describe())
	}
	return p.next().val
}

func (p *parser) expectBlockEnd() {
	if p.cur().kind != tokBlockEnd {
		p.fail("expected token 'end of statement block', got '%s'", p.cur().describe())
	}
	p.pos++
}

func (p *parser) enter() {
	if p.depth++; p.depth > maxNesting {
		failAt(p.cur().line, "Limit", "nested deeper than %d levels", maxNesting)
	}
}

func (p *parser) push(sc *scope) { p.scope = sc }

// inScope parses with a new scope, which f gets and which ends with it.
func (p *parser) inScope(f func(sc *scope)) *scope {
	outer, soft := p.scope, p.soft
	sc := newScope(outer.fn, outer)
	p.push(sc)
	p.soft = 0
	f(sc)
	p.soft = soft
	sc.hi = sc.fn.slots
	p.push(outer)
	return sc
}

// statements parses up to a block tag whose name is in ends, which stays current, or to the end of
// the template when there are none.
func (p *parser) statements(ends ...string) []stmt {
	p.enter()
	defer func() { p.depth-- }()
	if len(ends) > 0 {
		p.needle = append(p.needle, strings.Join(ends, "' or '"))
		defer func() { p.needle = p.needle[:len(p.needle)-1] }()
	}
	var body []stmt
	for {
		switch t := p.next(); t.kind {
		case tokData:
			body = append(body, textStmt{t.val})
		case tokVarBegin:
			line := p.cur().line
			e := p.tuple(true, false)
			if p.cur().kind != tokVarEnd {
				p.fail("expected token 'end of print statement', got '%s'", p.cur().describe())
			}
			p.pos++
			body = append(body, output(e, line))
		case tokBlockBegin:
			for _, end := range ends {
				if p.isName(end) {
					return body
				}
			}
			if st := p.statement(); st != nil {
				body = append(body, st)
			}
		case tokEOF:
			if len(ends) > 0 {
				p.eof()
			}
			return body
		default:
			p.fail("unexpected '%s'", t.describe())
		}
	}
}

func (p *parser) eof() {
	msg := "Unexpected end of template."
	if n := len(p.needle); n > 0 {
		msg += fmt.Sprintf(" Jinja was looking for the following tags: '%s'.", p.needle[n-1])
	}
	if n := len(p.open); n > 0 {
		msg += fmt.Sprintf(" The innermost block that needs to be closed is '%s'.", p.open[n-1])
	}
	p.fail("%s", msg)
}

func (p *parser) unknownTag(name string) {
	msg := fmt.Sprintf("Encountered unknown tag '%s'.", name)
	if n := len(p.needle); n > 0 {
		msg += fmt.Sprintf(" You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for '%s'.", p.needle[n-1])
	}
	if n := len(p.open); n > 0 {
		msg += fmt.Sprintf(" The innermost block that needs to be closed is '%s'.", p.open[n-1])
	}
	p.fail("%s", msg)
}

func (p *parser) statement() stmt {
	line := p.cur().line
	if p.cur().kind != tokName {
		p.fail("tag name expected")
	}
	name := p.cur().val
	p.open = append(p.open, name)
	defer func() { p.open = p.open[:len(p.open)-1] }()
	parse := map[string]func(int) stmt{
		"for": p.forTag, "if": p.ifTag, "set": p.setTag, "macro": p.macroTag, "call": p.callTag,
		"filter": p.filterTag, "with": p.withTag, "generation": p.generationTag, "print": p.printTag,
	}[name]
	if parse != nil {
		p.pos++
		return parse(line)
	}
	switch name {
	case "break", "continue":
		p.pos++
		p.expectBlockEnd()
		if name == "break" {
			return flowStmt{breakLoop}
		}
		return flowStmt{nextLoop}
	case "include", "import", "from", "extends":
		p.pos++
		for p.cur().kind != tokBlockEnd && p.cur().kind != tokEOF {
			p.pos++
		}
		p.expectBlockEnd()
		return raiseStmt{"TypeError", "no loader for this environment specified"}
	case "block":
		failUnsupported("the tag '%s'", name)
	}
	p.open = p.open[:len(p.open)-1]
	defer func() { p.open = append(p.open, name) }()
	p.unknownTag(name)
	return nil
}

func (p *parser) printTag(line int) stmt {
	e := p.tuple(true, false)
	p.expectBlockEnd()
	return output(e, line)
}

func output(e expr, line int) stmt {
	sum, _ := e.(*addExpr)
	return &outputStmt{e, sum, line}
}

func (p *parser) ifTag(line int) stmt {
	st := &ifStmt{line: line}
	p.soft++
	defer func() { p.soft-- }()
	for {
		test := p.tuple(false, false)
		st.tests = append(st.tests, test)
		st.conds = append(st.conds, asBool(test))
		p.expectBlockEnd()
		st.bodies = append(st.bodies, p.statements("elif", "else", "endif"))
		switch tag := p.next().val; tag {
		case "elif":
			continue
		case "else":
			p.expectBlockEnd()
			st.tests = append(st.tests, nil)
			st.conds = append(st.conds, nil)
			st.bodies = append(st.bodies, p.statements("endif"))
			p.pos++
		}
		p.expectBlockEnd()
		return st
	}
}

func (p *parser) forTag(line int) stmt {
	st := &forStmt{line: line}
	outer := p.scope
	st.scope = p.inScope(func(sc *scope) {
		st.target = p.assignTarget()
		if !p.skipName("in") {
			p.fail("expected token 'in', got '%s'", p.cur().describe())
		}
		p.push(outer) // what is iterated over does not see the loop's variables
		st.iter = p.tuple(false, false, "recursive")
		p.push(sc)
		if p.skipName("if") {
			st.test = p.expression()
			st.cond = asBool(st.test)
		}
		st.recursive = p.skipName("recursive")
		p.expectBlockEnd()
		from := len(p.names)
		st.loopSlot = sc.declare("loop")
		st.body = p.statements("endfor", "else")
		for _, n := range p.names[from:] {
			st.usesLoop = st.usesLoop || n.name == "loop"
		}
	})
	if p.next().val == "else" {
		p.expectBlockEnd()
		st.elseScope = p.inScope(func(*scope) { st.orElse = p.statements("endfor") })
		p.pos++
	}
	p.expectBlockEnd()
	return st
}

func (p *parser) setTag(line int) stmt {
	target := p.setTarget()
	if p.skipOp("=") {
		val := p.tuple(true, false)
		p.expectBlockEnd()
		p.store(target)
		return &setStmt{target, val, line}
	}
	st := &setBlockStmt{target: target, line: line}
	if p.isOp("|") {
		st.filter = p.filters(nil, true)
	}
	p.expectBlockEnd()
	st.scope = p.inScope(func(*scope) { st.body = p.statements("endset") })
	p.pos++
	p.expectBlockEnd()
	p.store(target)
	return st
}

// setTarget reads what {% set %} assigns to: names, or the attribute of a namespace.
func (p *parser) setTarget() expr {
	if p.cur().kind == tokName && p.tokens[p.pos+1].kind == tokOp && p.tokens[p.pos+1].val == "." {
		ns := p.name(p.next().val)
		p.pos++
		return &nsTarget{ns, p.expectName()}
	}
	return p.assignTargetUnbound()
}

// assignTarget reads loop or with targets and declares them in the current scope.
func (p *parser) assignTarget() expr {
	t := p.assignTargetUnbound()
	p.store(t)
	return t
}

func (p *parser) assignTargetUnbound() expr {
	var items []expr
	comma := false
	for {
		if p.skipOp("(") {
			items = append(items, p.assignTargetUnbound())
			p.expectOp(")")
		} else {
			if p.cur().kind != tokName {
				p.fail("expected token 'name', got '%s'", p.cur().describe())
			}
			name := p.next().val
			switch name {
			case "true", "false", "none", "True", "False", "None":
				p.fail("can't assign to '%s'", name)
			}
			items = append(items, &nameExpr{name: name, store: true})
		}
		if !p.skipOp(",") {
			break
		}
		comma = true
		if p.cur().kind != tokName && !p.isOp("(") {
			break
		}
	}
	if !comma {
		return items[0]
	}
	return &listExpr{items: items, tuple: true}
}

// store declares the names of an assignment target in the current scope.
func (p *parser) store(target expr) {
	switch t := target.(type) {
	case *nameExpr:
		t.scope = p.scope
		t.refs = []slotRef{{0, p.scope.declare(t.name)}}
	case *listExpr:
		for _, x := range t.items {
			p.store(x)
		}
	}
}

func (p *parser) macroTag(line int) stmt {
	st := &macroStmt{line: line, name: p.expectName()}
	st.target = &nameExpr{name: st.name, store: true}
	p.store(st.target)
	p.signature(st)
	p.expectBlockEnd()
	p.macroBody(st, "endmacro")
	return st
}

// signature reads the parameters; their names are stored when the body's scope exists.
func (p *parser) signature(st *macroStmt) {
	outer := p.scope
	st.fn = &funcScope{parent: outer.fn}
	outer.fn.captured = true
	st.inner = newScope(st.fn, outer)
	p.push(st.inner)
	p.expectOp("(")
	for !p.isOp(")") {
		if len(st.params) > 0 {
			p.expectOp(",")
		}
		param := &nameExpr{name: p.expectName(), store: true}
		p.store(param)
		if p.skipOp("=") {
			st.defaults = append(st.defaults, p.expression())
		} else if len(st.defaults) > 0 {
			p.fail("non-default argument follows default argument")
		}
		st.params = append(st.params, param)
	}
	p.expectOp(")")
	p.push(outer)
}

func (p *parser) macroBody(st *macroStmt, end string) {
	outer, soft := p.scope, p.soft
	sc := st.inner
	p.push(sc)
	p.soft = 0
	from := len(p.names)
	st.body = p.statements(end)
	p.pos++
	p.expectBlockEnd()
	// caller, varargs and kwargs exist for a macro that uses these names
	for _, special := range []struct {
		name string
		at   **nameExpr
	}{{"caller", &st.caller}, {"varargs", &st.varargs}, {"kwargs", &st.kwargs}} {
		for _, n := range p.names[from:] {
			if n.name == special.name && n.scope.fn == st.fn {
				if _, own := sc.names[special.name]; !own {
					*special.at = &nameExpr{name: special.name, store: true}
					p.store(*special.at)
				}
				break
			}
		}
	}
	sc.hi = st.fn.slots
	p.soft = soft
	p.push(outer)
}

func (p *parser) callTag(line int) stmt {
	st := &callBlockStmt{line: line, macro: &macroStmt{name: "caller", line: line}}
	if p.isOp("(") {
		p.signature(st.macro)
	} else {
		outer := p.scope
		st.macro.fn = &funcScope{parent: outer.fn}
		outer.fn.captured = true
		st.macro.inner = newScope(st.macro.fn, outer)
	}
	call, ok := p.expression().(*callExpr)
	if !ok {
		p.fail("expected call")
	}
	st.call = call
	p.expectBlockEnd()
	p.macroBody(st.macro, "endcall")
	return st
}

func (p *parser) filterTag(line int) stmt {
	st := &filterBlockStmt{line: line}
	st.filter = p.filters(nil, false)
	p.expectBlockEnd()
	st.scope = p.inScope(func(*scope) { st.body = p.statements("endfilter") })
	p.pos++
	p.expectBlockEnd()
	return st
}

func (p *parser) withTag(line int) stmt {
	st := &withStmt{line: line}
	outer := p.scope
	st.scope = p.inScope(func(sc *scope) {
		for p.cur().kind != tokBlockEnd {
			if len(st.targets) > 0 {
				p.expectOp(",")
			}
			target := p.assignTargetOne()
			p.expectOp("=")
			p.push(outer)
			st.vals = append(st.vals, p.expression())
			p.push(sc)
			p.store(target)
			st.targets = append(st.targets, target)
		}
		p.expectBlockEnd()
		st.body = p.statements("endwith")
	})
	p.pos++
	p.expectBlockEnd()
	return st
}

func (p *parser) assignTargetOne() expr {
	if p.skipOp("(") {
		t := p.assignTargetUnbound()
		p.expectOp(")")
		return t
	}
	return &nameExpr{name: p.expectName(), store: true}
}

func (p *parser) generationTag(line int) stmt {
	st := &withStmt{line: line}
	p.expectBlockEnd()
	st.scope = p.inScope(func(*scope) { st.body = p.statements("endgeneration") })
	p.pos++
	p.expectBlockEnd()
	return st
}
