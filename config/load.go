package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"kvasir/setting"
)

// maxFile bounds a configuration file; 10,000 engines fit.
const maxFile = 4 << 20

// Load reads a file over Defaults. Unknown keys are errors; every error names
// the file and the line.
func Load(name string) (Config, error) {
	c := Defaults()
	f, err := os.Open(name)
	if err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	return c, Parse(name, b, &c)
}

// Parse reads YAML (or JSON, which is YAML) over what c has. name is the file's.
// The parser is not ours, and panics on some input (issue 735 of goccy/go-yaml is one
// of several): that is an error too, whether in it or in what we make of its tree.
func Parse(name string, b []byte, c *Config) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: the YAML reader gave up (%v); want plain YAML", name, p)
		}
	}()
	if len(b) > maxFile {
		return fmt.Errorf("%s: more than %d bytes, want a configuration of up to as many", name, maxFile)
	}
	body, err := parse(b)
	if err != nil {
		return fmt.Errorf("%s:%w", name, err)
	}
	c.places = places{file: name, at: map[string]string{}}
	if body == nil { // only comments
		return nil
	}
	d := decoder{places: c.places, anchors: map[string]ast.Node{}}
	return d.places.prefix(d.decode("", body, reflect.ValueOf(c).Elem(), reflect.StructField{}))
}

// parse returns the one document in b, nil if there is none. Errors begin with line
// and column.
func parse(b []byte) (body ast.Node, err error) {
	if err := tooDeep(b); err != nil {
		return nil, err
	}
	f, err := parser.ParseBytes(b, 0)
	if err != nil {
		return nil, syntaxError(err)
	}
	for _, doc := range f.Docs {
		switch doc.Body.(type) {
		case nil, *ast.NullNode, *ast.CommentGroupNode, *ast.CommentNode:
			continue
		}
		if body != nil {
			return nil, fmt.Errorf("%s: a second document, want one", position(doc.Body))
		}
		body = doc.Body
	}
	return body, nil
}

// maxDepth bounds how deep a file may nest; the parser is recursive.
const maxDepth = 64

// tooDeep refuses what would cost the parser its stack: many open brackets, or many
// dashes at the beginning of one line.
func tooDeep(b []byte) error {
	depth, line, dashes := 0, 1, 0
	for _, c := range b {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '\n':
			line, dashes = line+1, 0
		case '-', '?', ':':
			dashes++
		case ' ', '\t':
		default:
			dashes = 0
		}
		if depth > maxDepth || dashes > 4*maxDepth {
			return fmt.Errorf("%d: nested deeper than %d", line, maxDepth)
		}
	}
	return nil
}

var positioned = regexp.MustCompile(`^\[(\d+):(\d+)\] `)

// syntaxError turns the parser's "[3:1] message" into "3:1: message".
func syntaxError(err error) error {
	text := strings.TrimSpace(yaml.FormatError(err, false, false))
	return errors.New(positioned.ReplaceAllString(text, "$1:$2: "))
}

// places says where the keys of a file stand.
type places struct {
	file string
	at   map[string]string // LINE:COLUMN by path
}

// locate puts file and line before the error of a setting that the file has.
func (p places) locate(err error) error {
	var e *setting.Error
	if !errors.As(err, &e) {
		return err
	}
	at, ok := p.at[e.Key]
	if !ok {
		return err
	}
	return fmt.Errorf("%s:%s: %w", p.file, at, err)
}

// Flagged says that a flag has replaced what the file says of key, with all that is
// in it: errors there have no line any more.
func (c *Config) Flagged(key string) {
	for k := range c.places.at {
		if k == key || strings.HasPrefix(k, key+".") || strings.HasPrefix(k, key+"[") {
			delete(c.places.at, k)
		}
	}
}

// prefix puts the file before an error that begins with a line.
func (p places) prefix(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s:%w", p.file, err)
}

// position returns LINE:COLUMN of a node.
func position(n ast.Node) string {
	if v, ok := n.(*ast.MappingNode); ok && len(v.Values) > 0 {
		n = v.Values[0]
	}
	if v, ok := n.(*ast.MappingValueNode); ok {
		n = v.Key
	}
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return "1:1"
	}
	return fmt.Sprintf("%d:%d", t.Position.Line, t.Position.Column)
}
