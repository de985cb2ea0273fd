package reference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kvasir/config"
	"kvasir/setting"
)

const root = "../.."

// Every key stands in the reference, and no others.
func TestEveryKey(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	group, got := "", []string{}
	for _, line := range strings.Split(string(page), "\n") {
		if h, ok := strings.CutPrefix(line, "## "); ok && h != "At the top" {
			group = h + "."
		}
		if m := regexp.MustCompile(`^- \*\*(\w+)\*\*: default `).FindStringSubmatch(line); m != nil {
			got = append(got, group+m[1])
		}
	}
	var want []string
	for _, s := range setting.List(new(config.Config)) {
		if !setting.Group(s.Field.Type) {
			want = append(want, s.Path)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the page has %q, want %q", got, want)
	}
}

// file has value at the path of s, and of an engine what goes with it.
func file(s setting.Setting, value string) string {
	if k, ok := strings.CutPrefix(s.Path, "engines[]."); ok {
		with := map[string]string{"url": "", "events": "url: http://a:1, "}[k]
		if k != "url" && k != "events" {
			with = "url: http://a:1, events: tcp://a:2, "
		}
		return fmt.Sprintf("{engines: [{%s%s: %s}]}", with, k, value)
	}
	parts := strings.Split(s.Path, ".")
	slices.Reverse(parts)
	for _, k := range parts {
		value = fmt.Sprintf("{%s: %s}", k, value)
	}
	return value
}

// loads reads text over a configuration in which each key may have any value that it
// accepts by itself.
func loads(text string) (config.Config, error) {
	c := config.Defaults()
	c.EventsListen, c.Policy.RayPrefix.EvictThreshold, c.Policy.RayPrefix.EvictTarget = "tcp://*:1", 1<<30, 1
	k := &c.Policy.Marginal.Coefficients
	k.PrefillToken, k.Attention, k.Step, k.DecodeStep, k.DecodeRequest, k.DecodeToken = 1e-4, 1e-9, .02, .02, 1e-5, 1e-8
	err := config.Parse("f", []byte(text), &c)
	if err == nil {
		err = setting.Check("", &c)
	}
	return c, err
}

// Each value that a schema's reader may try is accepted by the loader if and only if
// it is by the schema: the bounds, what is beyond them, other kinds.
func TestSchemaIsTheLoader(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/kvasir.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var top schemaDoc
	if err := json.Unmarshal(text, &top); err != nil {
		t.Fatal(err)
	}
	tried, refused := 0, 0
	for _, s := range setting.List(new(config.Config)) {
		if setting.Group(s.Field.Type) {
			continue
		}
		for _, value := range tries(s) {
			_, err := loads(file(s, value))
			ok := err == nil || ofSeveral(s, err)
			var doc any
			if err := json.Unmarshal([]byte(value), &doc); err != nil {
				t.Fatalf("%s: %s: %v", s.Path, value, err)
			}
			says := top.at(s.Path).accepts(doc)
			if s.Field.Type == durationType && says && err != nil {
				says = false // a pattern can't say a range
			}
			if s.Field.Type.Kind() == reflect.String && s.Rule.OneOf == nil || s.Field.Type.Kind() == reflect.Slice {
				if says && !ok {
					ok = true // nor the form of an address
				}
			}
			if tried++; !ok {
				refused++
			}
			if ok != says {
				t.Errorf("%s: %s: the loader accepts it: %v (%v), the schema: %v", s.Path, value, ok, err, says)
			}
		}
	}
	if tried < 800 || refused < 300 {
		t.Errorf("%d values tried, %d refused: too few to say anything", tried, refused)
	}
}

// ofSeveral says that err is about how several numbers go together, which a schema
// can't say: the range of s itself was kept.
func ofSeveral(s setting.Setting, err error) bool {
	var e *setting.Error
	return errors.As(err, &e) && s.Rule.Ranged && e.Want != s.Rule.Accepts(s.Field.Type)
}

// tries are values in JSON.
func tries(s setting.Setting) []string {
	out := []string{`null`, `[1]`, `{"a": 1}`}
	if s.Field.Type.Kind() == reflect.Map { // whatever is in it
		return append(out[:1], `{"a": "b"}`, `[]`, `1`)
	}
	t := s.Field.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	quote := func(x string) string { return `"` + x + `"` }
	switch {
	case t == durationType:
		for _, x := range []float64{s.Rule.Lo, s.Rule.Hi, s.Rule.Lo - 1, s.Rule.Hi + 1} {
			out = append(out, fmt.Sprintf(`"%dns"`, int64(x)))
		}
		return append(out, `0`, `5`, `true`, `"fast"`, `"5 minutes"`, `"1h30m"`, `"500 ms"`)
	case t.Kind() == reflect.Bool:
		return append(out, `true`, `false`, `1`, `"yes"`)
	case t.Kind() == reflect.String && s.Rule.OneOf != nil:
		for _, w := range s.Rule.OneOf {
			out = append(out, quote(w))
		}
		return append(out, `"nonsense"`)
	case t.Kind() == reflect.String:
		return append(out, `""`, quote(s.Other()))
	case t.Kind() == reflect.Slice:
		return append(out[:1], `["/a"]`, `{"a": 1}`, `"x"`)
	}
	step := 1.
	if t.Kind() == reflect.Float64 {
		step = math.Max(s.Rule.Lo/2, 1e-9)
		out = append(out, `0.5`)
	} else {
		out = append(out, `1.5`)
	}
	for _, x := range []float64{s.Rule.Lo, s.Rule.Lo - step, s.Rule.Hi, s.Rule.Hi + 1} {
		if !math.IsInf(x, 0) && !(s.Optional && x == 0) { // none of a group may be 0 alone
			b, _ := json.Marshal(x)
			out = append(out, string(b))
		}
	}
	if s.Rule.Or != "" {
		out = append(out, s.Rule.Or)
	}
	return append(out, `true`, `"many"`)
}

// Each example is accepted, and isn't the default.
func TestExamples(t *testing.T) {
	base, _ := loads("{}")
	plain, _ := base.YAML()
	for _, s := range setting.List(new(config.Config)) {
		if setting.Group(s.Field.Type) {
			continue
		}
		value := s.Other()
		if value == "" {
			t.Errorf("%s has no example: give it an example tag", s.Path)
			continue
		}
		c, err := loads(file(s, yamlText(&s, value)))
		if err != nil {
			t.Errorf("%s: the example %s: %v", s.Path, value, err)
		}
		if got, _ := c.YAML(); bytes.Equal(got, plain) {
			t.Errorf("%s: the example %s is the default", s.Path, value)
		}
	}
}

// A schemaDoc reads back what schema writes.
type schemaDoc struct {
	Type       []string              `json:"type"`
	Enum       []any                 `json:"enum"`
	Minimum    *float64              `json:"minimum"`
	Maximum    *float64              `json:"maximum"`
	Pattern    string                `json:"pattern"`
	AnyOf      []*schemaDoc          `json:"anyOf"`
	Items      *schemaDoc            `json:"items"`
	Properties map[string]*schemaDoc `json:"properties"`
	Additional any                   `json:"additionalProperties"`
}

func (x *schemaDoc) at(path string) *schemaDoc {
	for _, k := range strings.Split(path, ".") {
		k, list := strings.CutSuffix(k, "[]")
		if x = x.Properties[k]; list {
			x = x.Items
		}
	}
	return x
}

// accepts is JSON Schema's rules for what schema uses.
func (x *schemaDoc) accepts(v any) bool {
	if len(x.Type) > 0 && !slices.ContainsFunc(x.Type, func(t string) bool { return isA(t, v) }) {
		return false
	}
	if x.Enum != nil && !slices.Contains(x.Enum, v) {
		return false
	}
	switch v := v.(type) {
	case float64:
		if x.Minimum != nil && v < *x.Minimum || x.Maximum != nil && v > *x.Maximum {
			return false
		}
	case string:
		if x.Pattern != "" && !regexp.MustCompile(x.Pattern).MatchString(v) {
			return false
		}
	case []any:
		for _, e := range v {
			if x.Items != nil && !x.Items.accepts(e) {
				return false
			}
		}
	}
	return len(x.AnyOf) == 0 || slices.ContainsFunc(x.AnyOf, func(a *schemaDoc) bool { return a.accepts(v) })
}

func isA(t string, v any) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case float64:
		return t == "number" || t == "integer" && v == math.Trunc(v)
	case string:
		return t == "string"
	case []any:
		return t == "array"
	}
	return t == "object"
}
