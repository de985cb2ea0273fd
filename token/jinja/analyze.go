package jinja

// This file answers what vLLM asks a template's syntax tree (vllm/renderers/hf.py, 0.32): does it loop
// over the parts of a message's content? The rules are vLLM's, misses included: they decide in which
// shape every content reaches the template.

// ContentFormat is the shape in which a template expects the content of messages.
type ContentFormat uint8

const (
	StringContent ContentFormat = iota // text, the parts joined with newlines
	PartsContent                       // a list of {"type": "text", "text": ...}
)

func (f ContentFormat) String() string {
	if f == PartsContent {
		return "openai"
	}
	return "string"
}

// ContentFormat tells which shape vLLM would detect. ok is false for templates where it depends on
// vLLM's version (messages kept in an attribute of a namespace).
func (t *Template) ContentFormat() (f ContentFormat, ok bool) {
	a := &contentSearch{root: t.body}
	msgs, ok := a.aliases("messages")
	if !ok {
		return StringContent, false
	}
	items, found := a.messageLoops(msgs)
	if !found { // a loop with a tuple target: vLLM's detection fails and it takes the default
		return StringContent, true
	}
	if a.contentLoop(items) {
		return PartsContent, true
	}
	return StringContent, true
}

type contentSearch struct{ root []stmt }

// isVar reports a use of the variable, or with a key of that item of it; slices, filters and tests
// around it don't matter.
func isVar(e expr, name, key string) bool {
	switch n := e.(type) {
	case *filterExpr:
		return n.obj != nil && isVar(n.obj, name, key)
	case *testExpr:
		return isVar(n.obj, name, key)
	case *notExpr:
		// "x is not y" is Not(Test) in jinja2 and not looked through; ours is a flag on the test
		return false
	case *sliceExpr:
		return isVar(n.obj, name, key)
	case *nameExpr:
		return key == "" && n.name == name && !n.store
	case *attrExpr:
		return key != "" && n.name == key && isPlain(n.obj, name)
	case *itemExpr:
		c, ok := n.index.(*constExpr)
		return key != "" && ok && c.val.kind == KindString && c.val.str == key && isPlain(n.obj, name)
	}
	return false
}

func isPlain(e expr, name string) bool {
	n, ok := e.(*nameExpr)
	return ok && n.name == name && !n.store
}

func accesses(e expr, names map[string]bool, key string) bool {
	for name := range names {
		if isVar(e, name, key) {
			if t, ok := e.(*testExpr); ok && t.neg {
				continue
			}
			return true
		}
	}
	return false
}

// aliases lists the variables that {% set %} makes of a variable.
func (a *contentSearch) aliases(name string) (map[string]bool, bool) {
	names := map[string]bool{name: true}
	certain := true
	for grown := true; grown; {
		grown = false
		walk(a.root, func(n any) {
			set, ok := n.(*setStmt)
			if !ok || !accesses(set.val, names, "") {
				return
			}
			to, ok := set.target.(*nameExpr)
			if !ok {
				certain = false
			} else if !names[to.name] {
				names[to.name] = true
				grown = true
			}
		})
	}
	return names, certain
}

// messageLoops lists the variables of the loops over messages.
func (a *contentSearch) messageLoops(msgs map[string]bool) (items map[string]bool, ok bool) {
	items, ok = map[string]bool{}, true
	walk(a.root, func(n any) {
		loop, is := n.(*forStmt)
		if !is || !accesses(loop.iter, msgs, "") {
			return
		}
		if to, is := loop.target.(*nameExpr); is {
			items[to.name] = true
		} else {
			ok = false
		}
	})
	return items, ok
}

// contentLoop looks for a loop over content: of a message, of a macro's parameter that receives one,
// or, outside of macros, of a variable that is called content.
func (a *contentSearch) contentLoop(items map[string]bool) bool {
	params := map[*forStmt]map[string]bool{}
	inMacro := map[*forStmt]bool{}
	walk(a.root, func(n any) {
		m, ok := n.(*macroStmt)
		if !ok || m.target == nil { // {% call %} blocks are not macros here
			return
		}
		given := a.contentParams(m, items)
		walk(m.body, func(n any) {
			if loop, ok := n.(*forStmt); ok {
				inMacro[loop] = true
				if len(given) > 0 {
					params[loop] = given
				}
			}
		})
	})
	decided, result := false, false
	walk(a.root, func(n any) {
		loop, ok := n.(*forStmt)
		if !ok || decided {
			return
		}
		hit := accesses(loop.iter, items, "content")
		if name, ok := loop.iter.(*nameExpr); ok && !hit {
			hit = params[loop][name.name] || !inMacro[loop] && name.name == "content"
		}
		if hit {
			_, single := loop.target.(*nameExpr)
			decided, result = true, single
		}
	})
	return result
}

// contentParams lists the parameters of a macro that some call passes a message's content to.
func (a *contentSearch) contentParams(m *macroStmt, items map[string]bool) map[string]bool {
	given := map[string]bool{}
	walk(a.root, func(n any) {
		call, ok := n.(*callExpr)
		if !ok || !isPlain(call.fn, m.name) {
			return
		}
		for i, arg := range call.args.pos {
			if i < len(m.params) && accesses(arg, items, "content") {
				given[m.params[i].name] = true
			}
		}
		for i, name := range call.args.names {
			for _, p := range m.params {
				if p.name == name && accesses(call.args.kw[i], items, "content") {
					given[name] = true
				}
			}
		}
	})
	return given
}

// Variables lists the names that the template reads and does not set itself.
func (t *Template) Variables() []string {
	var out []string
	seen := map[string]bool{}
	for _, n := range t.names {
		if len(n.refs) == 0 && !n.bound && !seen[n.name] && n.name != "loop" {
			seen[n.name] = true
			out = append(out, n.name)
		}
	}
	return out
}

// walk visits the nodes below a list of statements, each before what is inside it, in the order of
// jinja2's Node.find_all.
func walk(body []stmt, f func(n any)) {
	for _, st := range body {
		walkStmt(st, f)
	}
}

func walkStmt(st stmt, f func(n any)) {
	f(st)
	switch n := st.(type) {
	case *outputStmt:
		walkExpr(n.val, f)
	case *ifStmt:
		for i := range n.tests {
			walkExpr(n.tests[i], f)
			walk(n.bodies[i], f)
		}
	case *forStmt:
		walkExpr(n.iter, f)
		walk(n.body, f)
		walk(n.orElse, f)
		walkExpr(n.test, f)
	case *setStmt:
		walkExpr(n.val, f)
	case *setBlockStmt:
		walkExpr(n.filter, f)
		walk(n.body, f)
	case *macroStmt:
		for _, d := range n.defaults {
			walkExpr(d, f)
		}
		walk(n.body, f)
	case *callBlockStmt:
		walkExpr(n.call, f)
		walk(n.macro.body, f)
	case *filterBlockStmt:
		walk(n.body, f)
		walkExpr(n.filter, f)
	case *withStmt:
		for _, v := range n.vals {
			walkExpr(v, f)
		}
		walk(n.body, f)
	}
}

func walkExpr(e expr, f func(n any)) {
	if e == nil {
		return
	}
	f(e)
	args := func(a callArgs) {
		for _, x := range append(append([]expr{a.star, a.dstar}, a.pos...), a.kw...) {
			walkExpr(x, f)
		}
	}
	list := func(xs ...expr) {
		for _, x := range xs {
			walkExpr(x, f)
		}
	}
	switch n := e.(type) {
	case *attrExpr:
		list(n.obj)
	case *itemExpr:
		list(n.obj, n.index)
	case *sliceExpr:
		list(n.obj, n.start, n.stop, n.step)
	case *callExpr:
		list(n.fn)
		args(n.args)
	case *filterExpr:
		list(n.obj)
		args(n.args)
	case *testExpr:
		list(n.obj)
		args(n.args)
	case *unaryExpr:
		list(n.obj)
	case *notExpr:
		list(n.obj)
	case *binaryExpr:
		list(n.left, n.right)
	case *andExpr:
		list(n.left, n.right)
	case *orExpr:
		list(n.left, n.right)
	case *addExpr:
		list(n.parts...)
	case *concatExpr:
		list(n.parts...)
	case *condExpr:
		list(n.test, n.yes, n.no)
	case *listExpr:
		list(n.items...)
	case *dictExpr:
		list(n.keys...)
		list(n.vals...)
	case *cmpExpr:
		list(n.first)
		for _, op := range n.ops {
			list(op.right)
		}
	}
}
