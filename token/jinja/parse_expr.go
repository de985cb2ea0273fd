package jinja

import (
	"strconv"
	"strings"
)

// name makes a use of a variable.
func (p *parser) name(name string) *nameExpr {
	n := &nameExpr{name: name, scope: p.scope, local: -1, ctx: -1}
	p.names = append(p.names, n)
	return n
}

// tuple reads an expression or, when there are commas, a tuple. Without cond an "if" is left to the
// caller ({% for x in y if z %}); stop is a name that ends an empty tuple.
func (p *parser) tuple(cond, explicit bool, stop ...string) expr {
	one := p.expression
	if !cond {
		one = p.or
	}
	var items []expr
	comma := false
	for {
		if len(items) > 0 {
			if !p.skipOp(",") {
				break
			}
			comma = true
		}
		if p.tupleEnd(stop) {
			break
		}
		items = append(items, one())
	}
	if !comma {
		if len(items) == 1 {
			return items[0]
		}
		if !explicit {
			p.fail("Expected an expression, got '%s'", p.cur().describe())
		}
	}
	return fold(&listExpr{items: items, tuple: true})
}

func (p *parser) tupleEnd(stop []string) bool {
	switch t := p.cur(); t.kind {
	case tokVarEnd, tokBlockEnd, tokEOF:
		return true
	case tokOp:
		return t.val == ")"
	case tokName:
		for _, s := range stop {
			if t.val == s {
				return true
			}
		}
	}
	return false
}

func (p *parser) expression() expr {
	p.enter()
	defer func() { p.depth-- }()
	e := p.or()
	for p.skipName("if") {
		p.soft++
		test := p.or()
		var no expr
		if p.skipName("else") {
			no = p.expression()
		}
		p.soft--
		e = &condExpr{test, e, no, asBool(test)}
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.skipName("or") {
		right := p.and()
		e = &orExpr{e, right, [2]boolExpr{asBool(e), asBool(right)}}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.skipName("and") {
		right := p.not()
		e = &andExpr{e, right, [2]boolExpr{asBool(e), asBool(right)}}
	}
	return e
}

func (p *parser) not() expr {
	if p.isName("not") {
		p.enter()
		defer func() { p.depth-- }()
		p.pos++
		e := p.not()
		return &notExpr{e, asBool(e)}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	e := p.sum()
	var ops []cmpOp
	for {
		t := p.cur()
		var op opCode
		switch {
		case t.kind == tokOp:
			switch t.val {
			case "==", "!=", "<", "<=", ">", ">=":
				op = opCodes[t.val]
			}
		case p.isName("in"):
			op = opIn
		case p.isName("not") && p.tokens[p.pos+1].kind == tokName && p.tokens[p.pos+1].val == "in":
			op = opNotIn
			p.pos++
		}
		if op < opEq {
			break
		}
		p.pos++
		ops = append(ops, cmpOp{op, p.sum()})
	}
	if ops == nil {
		return e
	}
	return &cmpExpr{e, ops}
}

func (p *parser) sum() expr {
	e := p.concat()
	for {
		switch {
		case p.skipOp("+"):
			right := p.concat()
			if add, ok := e.(*addExpr); ok && len(add.parts) < maxNesting {
				add.parts = append(add.parts, right)
			} else {
				e = &addExpr{[]expr{e, right}}
			}
		case p.skipOp("-"):
			e = fold(&binaryExpr{opSub, e, p.concat()})
		default:
			return e
		}
	}
}

func (p *parser) concat() expr {
	e := p.product()
	if !p.isOp("~") {
		return e
	}
	parts := []expr{e}
	for p.skipOp("~") {
		parts = append(parts, p.product())
	}
	return &concatExpr{parts}
}

func (p *parser) product() expr {
	e := p.power()
	for {
		t := p.cur()
		if t.kind != tokOp || t.val != "*" && t.val != "/" && t.val != "//" && t.val != "%" {
			return e
		}
		p.pos++
		e = fold(&binaryExpr{opCodes[t.val], e, p.power()})
	}
}

func (p *parser) power() expr {
	e := p.unary(true)
	for p.skipOp("**") {
		e = fold(&binaryExpr{opPow, e, p.unary(true)})
	}
	return e
}

func (p *parser) unary(withFilter bool) expr {
	p.enter()
	defer func() { p.depth-- }()
	var e expr
	switch {
	case p.skipOp("-"):
		e = fold(&unaryExpr{'-', p.unary(false)})
	case p.skipOp("+"):
		e = fold(&unaryExpr{'+', p.unary(false)})
	default:
		e = p.postfix(p.primary())
	}
	if withFilter {
		e = p.filters(e, true)
	}
	return e
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.val {
		case "true", "True":
			return &constExpr{Bool(true)}
		case "false", "False":
			return &constExpr{Bool(false)}
		case "none", "None":
			return &constExpr{None}
		}
		return p.name(t.val)
	case tokString:
		s := t.val
		for p.cur().kind == tokString {
			s += p.next().val
		}
		return &constExpr{Str(s)}
	case tokInt:
		v, ok := parseInt(t.val, 0)
		if !ok {
			p.fail("bad number %s", t.val)
		}
		return &constExpr{v}
	case tokFloat:
		f, _ := strconv.ParseFloat(strings.ReplaceAll(t.val, "_", ""), 64)
		return &constExpr{Float(f)}
	case tokOp:
		switch t.val {
		case "(":
			e := p.tuple(true, true)
			p.expectOp(")")
			return e
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	p.pos--
	if t.kind == tokEOF {
		p.pos++
	}
	p.fail("unexpected '%s'", t.describe())
	return nil
}

func (p *parser) list() expr {
	l := &listExpr{}
	for !p.isOp("]") {
		if len(l.items) > 0 {
			p.expectOp(",")
		}
		if p.isOp("]") {
			break
		}
		l.items = append(l.items, p.expression())
	}
	p.expectOp("]")
	return l
}

func (p *parser) dict() expr {
	d := &dictExpr{}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			p.expectOp(",")
		}
		if p.isOp("}") {
			break
		}
		d.keys = append(d.keys, p.expression())
		p.expectOp(":")
		d.vals = append(d.vals, p.expression())
	}
	p.expectOp("}")
	return d
}

// postfix reads .name, [index] and (call) after a primary.
func (p *parser) postfix(e expr) expr {
	for n := 0; ; n++ {
		if n > maxNesting {
			failAt(p.cur().line, "Limit", "more than %d subscripts in a row", maxNesting)
		}
		switch {
		case p.skipOp("."):
			t := p.next()
			switch t.kind {
			case tokName:
				e = &attrExpr{obj: e, name: t.val, loop: loopFields[t.val], direct: !pythonAttrs[t.val] && !strings.HasPrefix(t.val, "_")}
			case tokInt:
				v, _ := parseInt(t.val, 10)
				e = &itemExpr{e, &constExpr{v}}
			default:
				p.pos--
				p.fail("expected name or number")
			}
		case p.skipOp("["):
			e = p.subscript(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) subscript(e expr) expr {
	var args []expr
	tuple := false
	for !p.isOp("]") {
		if len(args) > 0 {
			p.expectOp(",")
			tuple = true
		}
		args = append(args, p.subscribed(e))
	}
	p.expectOp("]")
	if len(args) == 1 && !tuple {
		if sl, ok := args[0].(*sliceExpr); ok {
			sl.constant = true
			walkExpr(sl, func(n any) {
				if _, ok := n.(*nameExpr); ok {
					sl.constant = false
				}
			})
			return sl
		}
		return &itemExpr{e, args[0]}
	}
	if len(args) == 0 {
		p.fail("expected an expression")
	}
	failUnsupported("a subscript of several values")
	return nil
}

func (p *parser) subscribed(obj expr) expr {
	var parts [3]expr
	i, colons := 0, 0
	for {
		switch {
		case p.isOp("]") || p.isOp(","):
			if colons == 0 {
				return parts[0]
			}
			return &sliceExpr{obj: obj, start: parts[0], stop: parts[1], step: parts[2]}
		case p.isOp(":"):
			p.pos++
			if colons++; colons > 2 {
				p.fail("expected token ']', got ':'")
			}
			i = colons
		default:
			if parts[i] != nil {
				p.fail("expected token ']', got '%s'", p.cur().describe())
			}
			parts[i] = p.expression()
		}
	}
}

func (p *parser) call(fn expr) expr {
	c := &callExpr{fn: fn, args: p.args()}
	if at, ok := fn.(*attrExpr); ok {
		c.method, c.ofString, c.ofDict = at, stringMethods[at.name], dictMethods[at.name]
	}
	return c
}

func (p *parser) args() (a callArgs) {
	a.simple = true
	p.expectOp("(")
	for first := true; !p.isOp(")"); first = false {
		if !first {
			p.expectOp(",")
			if p.isOp(")") {
				break
			}
		}
		switch {
		case p.skipOp("*"):
			a.star, a.simple = p.expression(), false
		case p.skipOp("**"):
			a.dstar, a.simple = p.expression(), false
		case p.cur().kind == tokName && p.tokens[p.pos+1].kind == tokOp && p.tokens[p.pos+1].val == "=":
			a.names = append(a.names, p.next().val)
			p.pos++
			a.kw = append(a.kw, p.expression())
		default:
			if len(a.kw) > 0 || !a.simple {
				p.fail("invalid syntax for function call expression")
			}
			a.pos = append(a.pos, p.expression())
		}
	}
	p.expectOp(")")
	return a
}

// filters reads | filter, is test and (call) after e. With pipe false it starts at a filter's name.
func (p *parser) filters(e expr, pipe bool) expr {
	for n := 0; ; n++ {
		if n > maxNesting {
			failAt(p.cur().line, "Limit", "more than %d filters in a row", maxNesting)
		}
		switch {
		case !pipe:
			pipe = true
			e = p.filter(e)
		case p.skipOp("|"):
			e = p.filter(e)
		case e != nil && p.isName("is"):
			p.pos++
			e = p.test(e)
		case e != nil && p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) dotted() string {
	name := p.expectName()
	for p.skipOp(".") {
		name += "." + p.expectName()
	}
	return name
}

func (p *parser) filter(e expr) expr {
	f := &filterExpr{obj: e, name: p.dotted()}
	f.fn = filters[f.name]
	if f.fn == nil {
		if unsupportedFilters[f.name] {
			failUnsupported("the filter '%s'", f.name)
		}
		if p.soft == 0 {
			p.pos--
			failAt(p.cur().line, "TemplateAssertionError", "No filter named '%s'.", f.name)
		}
	}
	f.args.simple = true
	if p.isOp("(") {
		f.args = p.args()
	}
	return f
}

func (p *parser) test(e expr) expr {
	t := &testExpr{obj: e, neg: p.skipName("not")}
	t.name = p.dotted()
	t.fn = tests[t.name]
	if t.fn == nil && p.soft == 0 {
		failAt(p.cur().line, "TemplateAssertionError", "No test named '%s'.", t.name)
	}
	t.args.simple = true
	switch c := p.cur(); {
	case p.isOp("("):
		t.args = p.args()
	case c.kind == tokString || c.kind == tokInt || c.kind == tokFloat || p.isOp("[") || p.isOp("{") ||
		c.kind == tokName && c.val != "else" && c.val != "or" && c.val != "and":
		if p.isName("is") {
			p.fail("You cannot chain multiple tests with is")
		}
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	return t
}

// fold computes an operation on constants once.
func fold(e expr) (out expr) {
	constant := false
	switch n := e.(type) {
	case *listExpr:
		constant = true
		for _, x := range n.items {
			constant = constant && isConst(x)
		}
	case *unaryExpr:
		constant = isConst(n.obj)
	case *binaryExpr:
		constant = isConst(n.left) && isConst(n.right)
	}
	if !constant {
		return e
	}
	defer func() {
		if recover() != nil {
			out = e // it fails when it is run
		}
	}()
	s := &state{limits: Limits{Steps: 1000, Output: 1 << 12, Memory: 1 << 16, Depth: 1}}
	return &constExpr{e.eval(s)}
}

func isConst(e expr) bool { _, ok := e.(*constExpr); return ok }
