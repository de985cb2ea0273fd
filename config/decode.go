package config

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"kvasir/setting"
)

// A decoder puts a file's nodes into the structs that own the settings. It is ours
// so that each error says the line, the key as it stands in the file, the value and
// what is accepted, instead of Go's types. What is empty in the file ("proxy:" with
// nothing behind it) leaves the default alone.
type decoder struct {
	places  places
	anchors map[string]ast.Node
}

// fault is an error with its place in front.
func fault(n ast.Node, path, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %s", position(n), path, fmt.Sprintf(format, args...))
}

// plain looks behind anchors, aliases and tags; nil is nothing.
func (d *decoder) plain(path string, n ast.Node) (ast.Node, error) {
	for range 8 {
		switch x := n.(type) {
		case *ast.AnchorNode:
			d.anchors[x.Name.GetToken().Value] = x.Value
			n = x.Value
		case *ast.AliasNode:
			v, ok := d.anchors[x.Value.GetToken().Value]
			if !ok {
				return nil, fault(n, path, "*%s, want an anchor that stands before it", x.Value.GetToken().Value)
			}
			n = v
		case *ast.TagNode:
			n = x.Value
		case nil, *ast.NullNode, *ast.CommentGroupNode, *ast.CommentNode:
			return nil, nil
		default:
			return n, nil
		}
	}
	return nil, fault(n, path, "an alias of an alias of an alias, want a value")
}

// decode puts n into v, the field f at path.
func (d *decoder) decode(path string, n ast.Node, v reflect.Value, f reflect.StructField) error {
	n, err := d.plain(path, n)
	if n == nil || err != nil {
		return err
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.mapping(path, n, v)
	case reflect.Slice:
		return d.list(path, n, v)
	case reflect.Map:
		return d.table(path, n, v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	return d.scalar(path, n, v, f)
}

// entries returns the pairs of a mapping, those of merged ones (<<) first.
func (d *decoder) entries(path string, n ast.Node) (out []*ast.MappingValueNode, err error) {
	var list []*ast.MappingValueNode
	switch x := n.(type) {
	case *ast.MappingNode:
		list = x.Values
	case *ast.MappingValueNode:
		list = []*ast.MappingValueNode{x}
	default:
		return nil, fault(n, orTop(path), "%s, want a mapping, key: value", shown(n))
	}
	for _, e := range list {
		if e.Key.IsMergeKey() {
			base, err := d.plain(path, e.Value)
			if err != nil || base == nil {
				return nil, err
			}
			more, ok := base.(*ast.MappingNode)
			if !ok {
				return nil, fault(e, orTop(path), "<<: %s, want a mapping", shown(base))
			}
			out = append(out, more.Values...)
		}
	}
	for _, e := range list {
		if !e.Key.IsMergeKey() {
			out = append(out, e)
		}
	}
	return out, nil
}

func (d *decoder) mapping(path string, n ast.Node, v reflect.Value) error {
	list, err := d.entries(path, n)
	if err != nil {
		return err
	}
	keys := map[string]int{}
	var names []string
	for i := range v.NumField() {
		if k, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ","); k != "" {
			keys[k] = i
			names = append(names, k)
		}
	}
	for _, e := range list {
		k := e.Key.GetToken().Value
		i, ok := keys[k]
		if !ok {
			hint := "want one of " + strings.Join(names, ", ")
			if near := setting.Nearest(k, names); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			return fault(e, join(path, k), "unknown key, %s", hint)
		}
		d.places.at[join(path, k)] = position(e)
		if err := d.decode(join(path, k), e.Value, v.Field(i), v.Type().Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) list(path string, n ast.Node, v reflect.Value) error {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return fault(n, path, "%s, want a list", shown(n))
	}
	out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, x := range seq.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		if v.Type().Elem().Kind() == reflect.Struct {
			setting.Fill(out.Index(i).Addr().Interface())
		}
		if err := d.decode(at, x, out.Index(i), reflect.StructField{}); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

// table fills a map: texts by text, or anything by text.
func (d *decoder) table(path string, n ast.Node, v reflect.Value) error {
	list, err := d.entries(path, n)
	if err != nil {
		return err
	}
	out := reflect.MakeMap(v.Type())
	for _, e := range list {
		k := e.Key.GetToken().Value
		x := reflect.New(v.Type().Elem()).Elem()
		if x.Kind() == reflect.String {
			err = d.decode(join(path, k), e.Value, x, reflect.StructField{})
		} else {
			err = anything(join(path, k), e.Value, x)
		}
		if err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(k), x)
	}
	v.Set(out)
	return nil
}

// anything leaves the value to the library, and fences it.
func anything(path string, n ast.Node, x reflect.Value) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault(n, path, "the YAML reader gave up (%v)", p)
		}
	}()
	var a any
	if err := yaml.NodeToValue(n, &a); err != nil {
		return fault(n, path, "%s", strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	if a != nil {
		x.Set(reflect.ValueOf(a))
	}
	return nil
}

func (d *decoder) scalar(path string, n ast.Node, v reflect.Value, f reflect.StructField) error {
	bad := func(hint string) error {
		if hint != "" {
			hint = " (" + hint + ")"
		}
		return fault(n, path, "%s, want %s%s", shown(n), setting.Wanted(f, v.Type()), hint)
	}
	text := scalarText(n)
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode:
		return bad("")
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		t, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			return bad(durationHint(text))
		}
		v.SetInt(int64(t))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return bad("")
		}
		v.SetBool(b.Value)
	case v.Kind() == reflect.Float64:
		x, ok := number(n)
		if !ok {
			return bad("")
		}
		v.SetFloat(x)
	default:
		x, ok := whole(n, f.Tag.Get("unit") == "bytes")
		if !ok {
			return bad("")
		}
		v.SetInt(x)
	}
	return nil
}

// scalarText returns what a scalar says, "" for what is none.
func scalarText(n ast.Node) string {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value
	case *ast.LiteralNode:
		return x.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return x.GetToken().Value
	}
	return ""
}

func number(n ast.Node) (float64, bool) {
	switch x := n.(type) {
	case *ast.IntegerNode:
		switch i := x.Value.(type) {
		case uint64:
			return float64(i), true
		case int64:
			return float64(i), true
		}
	case *ast.FloatNode:
		return x.Value, true
	case *ast.InfinityNode:
		return x.Value, true
	case *ast.NanNode:
		return math.NaN(), true
	case *ast.StringNode: // 1e9 is a text to YAML, and a number to people
		f, err := strconv.ParseFloat(x.Value, 64)
		return f, err == nil && x.GetToken().Value == strings.TrimSpace(x.GetToken().Origin)
	}
	return 0, false
}

var size = regexp.MustCompile(`^(\d{1,6}) ?([KMGT])(i?)B?$`)

// whole reads a whole number; with bytes also 4GiB, 64MB or 4Gi.
func whole(n ast.Node, bytes bool) (int64, bool) {
	if f, ok := number(n); ok {
		return int64(f), f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	m := size.FindStringSubmatch(scalarText(n))
	if m == nil || !bytes {
		return 0, false
	}
	k, base := int64(1), int64(1000)
	if m[3] == "i" {
		base = 1024
	}
	for range strings.Index("KMGT", m[2]) + 1 {
		k *= base
	}
	x, _ := strconv.ParseInt(m[1], 10, 64)
	return x * k, true
}

var spelled = regexp.MustCompile(`^(\d+(?:\.\d+)?) *(ms|s|m|h)?[a-z]*$`)

// durationHint guesses what 5, or 5 minutes, was meant to be.
func durationHint(text string) string {
	m := spelled.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	if m[2] == "" {
		m[2] = "s"
	}
	return fmt.Sprintf("did you mean %s%s?", m[1], m[2])
}

// shown returns a node as an error may show it.
func shown(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	}
	if t := scalarText(n); t != "" {
		return fmt.Sprintf("%.80q", t)
	}
	return "this"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func orTop(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}
