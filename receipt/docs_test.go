package receipt

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// docs/receipts.md has a row for every field, and none for others.
func TestDocsNameEveryField(t *testing.T) {
	b, err := os.ReadFile("../docs/receipts.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := strings.Split(string(b), "| field | meaning |\n")[1:]
	types := []reflect.Type{reflect.TypeFor[Header](), reflect.TypeFor[Line](), reflect.TypeFor[Candidate]()}
	if len(tables) != len(types) {
		t.Fatalf("%d tables of fields, want %d: header, line, candidate", len(tables), len(types))
	}
	for i, typ := range types {
		rows := map[string]bool{}
		for _, line := range strings.Split(strings.Split(tables[i], "\n\n")[0], "\n")[1:] {
			for _, name := range strings.Split(strings.Split(line, "|")[1], ",") {
				rows[strings.Trim(name, " `")] = true
			}
		}
		for k := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(k).Tag.Get("json"), ",")
			if !rows[name] {
				t.Errorf("%s: no row for %q", typ, name)
			}
			delete(rows, name)
		}
		for name := range rows {
			t.Errorf("%s: a row for %q, which is no field", typ, name)
		}
	}
}
