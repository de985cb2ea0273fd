package jinja

// An expr is a node that has a value; the tree is both what is analysed and what is run.
type expr interface {
	eval(s *state) Value
}

type (
	constExpr struct{ val Value }
	nameExpr  struct {
		name  string
		scope *scope
		store bool // an assignment target, so not a use of the name
		refs  []slotRef
		bound bool // some scope sets the name
		local int  // the slot of the only ref, when it is in the own frame; else -1
		ctx   int  // index into the context, when no scope has set it
	}
	attrExpr struct {
		obj    expr
		name   string
		loop   loopField
		direct bool // no type of ours has an attribute of this name: look in the dict at once
	}
	itemExpr  struct{ obj, index expr }
	sliceExpr struct {
		obj, start, stop, step expr
		constant               bool // no variable is in it
	}
	callExpr struct {
		fn   expr
		args callArgs
		// of a call of an attribute: the attribute, and the methods of that name
		method   *attrExpr
		ofString stringMethod
		ofDict   stringMethod
	}
	filterExpr struct {
		obj  expr // nil inside {% filter %} and {% set x | f %}: the block's text
		name string
		fn   filterFunc
		args callArgs
	}
	testExpr struct {
		obj  expr
		name string
		fn   testFunc
		args callArgs
		neg  bool
	}
	unaryExpr struct {
		op  byte // '-' or '+'
		obj expr
	}
	binaryExpr struct {
		op          opCode
		left, right expr
	}
	addExpr struct{ parts []expr } // a + b + c, flattened
	andExpr struct {
		left, right expr
		tests       [2]boolExpr // the same two
	}
	orExpr struct {
		left, right expr
		tests       [2]boolExpr
	}
	notExpr struct {
		obj  expr
		test boolExpr
	}
	cmpExpr struct {
		first expr
		ops   []cmpOp
	}
	concatExpr struct{ parts []expr }
	condExpr   struct {
		test, yes, no expr
		cond          boolExpr
	}
	listExpr struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, vals []expr }
)

type cmpOp struct {
	op    opCode
	right expr
}

type opCode uint8

const (
	opAdd opCode = iota
	opSub
	opMul
	opDiv
	opFloor
	opMod
	opPow
	opEq
	opNe
	opLt
	opLe
	opGt
	opGe
	opIn
	opNotIn
)

var opCodes = map[string]opCode{
	"+": opAdd, "-": opSub, "*": opMul, "/": opDiv, "//": opFloor, "%": opMod, "**": opPow,
	"==": opEq, "!=": opNe, "<": opLt, "<=": opLe, ">": opGt, ">=": opGe,
}

type callArgs struct {
	pos    []expr
	names  []string // keyword arguments
	kw     []expr
	star   expr // *args
	dstar  expr // **kwargs
	simple bool // no star forms
}

// A stmt writes to the state's output and tells how the loop around it goes on.
type stmt interface {
	exec(s *state) flow
}

type flow uint8

const (
	goOn flow = iota
	breakLoop
	nextLoop
)

type (
	textStmt   struct{ text string }
	outputStmt struct {
		val  expr
		sum  *addExpr // val, when it is one
		line int
	}
	ifStmt struct {
		tests  []expr // nil for else
		conds  []boolExpr
		bodies [][]stmt
		line   int
	}
	forStmt struct {
		target    expr
		iter      expr
		test      expr
		cond      boolExpr
		body      []stmt
		orElse    []stmt
		recursive bool
		usesLoop  bool
		loopSlot  int
		scope     *scope
		elseScope *scope
		line      int
	}
	setStmt struct {
		target expr
		val    expr
		line   int
	}
	setBlockStmt struct {
		target expr
		filter expr
		body   []stmt
		scope  *scope
		line   int
	}
	nsTarget struct {
		ns   *nameExpr
		attr string
	}
	macroStmt struct {
		name     string
		target   *nameExpr
		params   []*nameExpr
		defaults []expr // for the last len(defaults) params
		body     []stmt
		fn       *funcScope
		inner    *scope    // its body
		caller   *nameExpr // set when the body uses the name
		varargs  *nameExpr
		kwargs   *nameExpr
		line     int
	}
	callBlockStmt struct {
		call  *callExpr
		macro *macroStmt
		line  int
	}
	filterBlockStmt struct {
		filter expr
		body   []stmt
		scope  *scope
		line   int
	}
	withStmt struct { // also {% generation %}: a scope without variables
		targets []expr
		vals    []expr
		body    []stmt
		scope   *scope
		line    int
	}
	flowStmt  struct{ flow flow }
	raiseStmt struct{ pyType, message string }
)

func (t textStmt) exec(s *state) flow {
	s.out = append(s.out, t.text...)
	s.checkOutput()
	return goOn
}

func (f flowStmt) exec(*state) flow  { return f.flow }
func (r raiseStmt) exec(*state) flow { fail(r.pyType, "%s", r.message); return goOn }

func (n *nsTarget) eval(*state) Value { return Value{} }
