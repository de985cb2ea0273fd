package jinja

import (
	"strings"
	"testing"
)

// TestLimits gives the engine templates that loop, explode or recurse: each is stopped with an error
// that says so, and nothing else happens.
func TestLimits(t *testing.T) {
	deepList := strings.Repeat("[", 90) + strings.Repeat("]", 90)
	for name, src := range map[string]string{
		"nested loops":     "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
		"doubling text":    "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"doubling ~":       "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
		"doubling list":    "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"doubling join":    "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x]|join %}{% endfor %}",
		"doubling replace": "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x|replace('a','aa') %}{% set ns.x = ns.x.replace('b', ns.x) %}{% endfor %}",
		"doubling format":  "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
		"output":           "{% for a in range(100000) %}{% for b in range(1000) %}" + strings.Repeat("x", 4000) + "{% endfor %}{% endfor %}",
		"repeat text":      "{{ 'x' * 10**12 }}",
		"repeat list":      "{{ ([0] * 10**12)|length }}",
		"power":            "{{ 9 ** (9 ** 9) }}",
		"width":            "{{ '%1000000000d' % 1 }}",
		"center":           "{{ 'x'.center(10**12) }}",
		"indent":           "{{ 'x\ny'|indent(10**12) }}",
		"tojson indent":    "{{ {'a':1}|tojson(indent=10**9) }}",
		"zfill":            "{{ '1'.zfill(10**12) }}",
		"batch fill":       "{{ [1]|batch(10**12, 0)|list|length }}",
		"slice":            "{{ [1]|slice(10**12)|list|length }}",
		"recursion":        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"mutual recursion": "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
		"recursive loop":   "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"caller recursion": "{% macro f() %}{% call f() %}x{% endcall %}{% endmacro %}{{ f() }}",
		"macro tree":       "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
		"loop over bytes":  "{% set x = 'ab' * 10000000 %}{% for i in range(100000) %}{% for c in x %}{% endfor %}{% endfor %}",
		"contains":         "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% if 'b' in x %}{% endif %}{% endfor %}",
		"nested blocks":    strings.Repeat("{% if 1 %}", 5000),
		"nested brackets":  "{{ " + strings.Repeat("(", 100000),
		"nested lists":     "{{ " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + " }}",
		"nested not":       "{{ " + strings.Repeat("not ", 100000) + "1 }}",
		"nested minus":     "{{ " + strings.Repeat("-", 100000) + "1 }}",
		"nested if":        "{{ " + strings.Repeat("1 if 0 else ", 100000) + "1 }}",
		"long filters":     "{{ 1" + strings.Repeat("|string", 100000) + " }}",
		"long attributes":  "{{ x" + strings.Repeat(".a", 100000) + " }}",
		"long calls":       "{{ x" + strings.Repeat("()", 100000) + " }}",
		"namespace loop":   "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
		"nested values":    "{% set ns = namespace(x=" + deepList + ") %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
		"compare deep":     "{% set ns = namespace(x=[], y=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
		"sum of lists":     "{{ [[1]]|batch(1)|sum(start=[]) }}{% set ns = namespace(x=[[1]]) %}{% for i in range(99) %}{% set ns.x = [ns.x|sum(start=[]) + ns.x|sum(start=[])] %}{% endfor %}",
		"range":            "{{ range(10**9) }}",
	} {
		t.Run(name, func(t *testing.T) {
			tpl, err := Compile(src)
			if err == nil {
				// a tenth of the default, so that the test is short
				_, err = tpl.Render(NewDict(0), Env{Now: frozen, Limits: Limits{Steps: 2_000_000, Output: 6 << 20, Memory: 50 << 20, Depth: 100}})
			}
			if err == nil {
				t.Fatal("it ended without an error")
			}
			if e, ok := err.(*Error); !ok || strings.HasPrefix(e.Message, "engine bug") {
				t.Fatalf("%v", err)
			}
		})
	}
}

// TestLimitsAreSaid checks that a caller can tell a limit from a refusal, and where it happened.
func TestLimitsAreSaid(t *testing.T) {
	tpl, err := Compile("a\nb\n{% for a in range(1000) %}{% for b in range(1000) %}\n{{ a }}{% endfor %}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	_, err = tpl.Render(NewDict(0), Env{Now: frozen, Limits: Limits{Steps: 1000, Output: 1 << 20, Memory: 16 << 20, Depth: 10}})
	e, ok := err.(*Error)
	if !ok || !e.Limit || e.Line < 3 {
		t.Fatalf("got %v, want a limit on line 3 or 4", err)
	}
}

// TestConcurrent renders one template from many goroutines (for -race).
func TestConcurrent(t *testing.T) {
	tpl, err := Compile("{% macro f(x) %}[{{ x }}]{% endmacro %}{% set ns = namespace(n=0) %}{% for m in l %}{% set ns.n = ns.n + m %}{{ f(m) }}{% endfor %}{{ ns.n }}{{ d|tojson }}")
	if err != nil {
		t.Fatal(err)
	}
	v, err := ParseJSON([]byte(`{"l":[1,2,3],"d":{"a":[1.5,null]}}`))
	if err != nil {
		t.Fatal(err)
	}
	vars, _ := v.AsDict()
	done := make(chan string)
	for range 8 {
		go func() {
			out, _ := tpl.Render(vars, Env{Now: frozen})
			done <- out
		}()
	}
	for range 8 {
		if got := <-done; got != `[1][2][3]6{"a": [1.5, null]}` {
			t.Errorf("got %q", got)
		}
	}
}
