package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"kvasir/setting"
)

// comments has the words of the source: of fields, by "kvasir/policy.Dynamo.Preset",
// and of types, by "kvasir/policy.Dynamo".
type comments map[string]string

// readComments reads the packages that own the settings. A setting without a comment
// is an error.
func readComments(root string, list []setting.Setting) (comments, error) {
	out, read := comments{}, map[string]bool{}
	for _, s := range list {
		pkg := s.Owner.PkgPath()
		if read[pkg] {
			continue
		}
		read[pkg] = true
		if err := out.read(root, pkg); err != nil {
			return nil, err
		}
	}
	for _, s := range list {
		if out.of(s) == "" {
			return nil, fmt.Errorf("%s (%s.%s) has no comment: say what it means", s.Path, s.Owner, s.Field.Name)
		}
	}
	return out, nil
}

func (c comments) read(root, pkg string) error {
	dir := filepath.Join(root, strings.TrimPrefix(pkg, "kvasir/"))
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				c.types(pkg, g)
			}
		}
	}
	return nil
}

func (c comments) types(pkg string, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		t, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		st, ok := t.Type.(*ast.StructType)
		if !ok {
			continue
		}
		name := pkg + "." + t.Name.Name
		c[name] = flat(g.Doc.Text())
		for _, f := range st.Fields.List {
			for _, n := range f.Names {
				text := f.Doc.Text()
				if text == "" {
					text = f.Comment.Text()
				}
				c[name+"."+n.Name] = flat(text)
			}
		}
	}
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// of returns what the field of s says; for a group without words of its own what its
// type says.
func (c comments) of(s setting.Setting) string {
	if text := c[s.Owner.PkgPath()+"."+s.Owner.Name()+"."+s.Field.Name]; text != "" {
		return text
	}
	t := s.Field.Type
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return c[t.PkgPath()+"."+t.Name()]
}

var goName = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`)

// meaning is the comment in the words of the file: names of fields become keys, and
// what only Go programmers need goes.
func (c comments) meaning(s setting.Setting, list []setting.Setting) string {
	text := c.of(s)
	for _, noise := range []string{" Start from Defaults.", " Start from NewEngine.", " Start from setting.Defaults.", " Start from Defaults: the zero Config is not valid."} {
		text = strings.ReplaceAll(text, noise, "")
	}
	keys := map[string]string{}
	for _, o := range list {
		if n := o.Field.Name; o.Owner == s.Owner && strings.ToUpper(n) != n {
			keys[n] = o.Path[strings.LastIndexAny(o.Path, ".]")+1:]
		} else if n := o.Field.Name; len(goName.FindString(n)) > 0 && strings.ToUpper(n[1:]) != n[1:] && strings.ToLower(n[1:]) != n[1:] && keys[n] == "" {
			keys[n] = o.Path
		}
	}
	keys[s.Field.Name] = key(s.Path)
	first := true
	text = goName.ReplaceAllStringFunc(text, func(word string) string {
		defer func() { first = false }()
		if k, ok := keys[word]; ok && (word != s.Field.Name || first) {
			return "`" + k + "`"
		}
		return word
	})
	return text
}

// key is the last part of a path.
func key(path string) string { return path[strings.LastIndex(path, ".")+1:] }
