package reference

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"time"

	"kvasir/setting"
)

// A schema is the part of JSON Schema (draft 7) that a setting needs. An empty value
// (null) is accepted everywhere: it leaves the default alone.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        []string           `json:"type,omitempty"`
	Default     any                `json:"default,omitempty"`
	Enum        []any              `json:"enum,omitempty"`
	Minimum     *float64           `json:"minimum,omitempty"`
	Maximum     *float64           `json:"maximum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	AnyOf       []*schema          `json:"anyOf,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Additional  any                `json:"additionalProperties,omitempty"` // false, or a schema
}

const (
	durationPattern = `^([0-9]+(\.[0-9]*)?|\.[0-9]+) *(ns|us|µs|ms|s|m|h)( *([0-9]+(\.[0-9]*)?|\.[0-9]+) *(ns|us|µs|ms|s|m|h))*$|^0$`
	bytesPattern    = `^[0-9]{1,6} ?[KMGT]i?B?$`
)

var durationType = reflect.TypeFor[time.Duration]()

func writeSchema(list []setting.Setting, words comments) ([]byte, error) {
	top := &schema{Schema: "http://json-schema.org/draft-07/schema#", Title: "Kvasir's configuration", Type: []string{"object", "null"}, Properties: map[string]*schema{}, Additional: false}
	groups := map[string]*schema{"": top}
	for i := range list {
		s := &list[i]
		x := schemaOf(s)
		x.Description = words.meaning(*s, list) + unit(s)
		at := ""
		if j := strings.LastIndex(s.Path, "."); j >= 0 {
			at = s.Path[:j]
		}
		groups[at].Properties[key(s.Path)] = x
		groups[s.Path] = x
		if x.Items != nil {
			groups[s.Path+"[]"] = x.Items
		}
	}
	groups["engines[]"].Required = []string{"url"}
	text, err := json.MarshalIndent(top, "", "  ")
	return append(text, '\n'), err
}

func unit(s *setting.Setting) string {
	if s.Rule.Unit == "" {
		return ""
	}
	return " In " + s.Rule.Unit + "."
}

func schemaOf(s *setting.Setting) *schema {
	t := s.Field.Type
	switch {
	case t.Kind() == reflect.Struct:
		return &schema{Type: []string{"object", "null"}, Properties: map[string]*schema{}, Additional: false}
	case setting.Group(t):
		return &schema{Type: []string{"array", "null"}, Items: &schema{Type: []string{"object"}, Properties: map[string]*schema{}, Additional: false}}
	case t.Kind() == reflect.Slice:
		list := &schema{Type: []string{"array", "null"}, Items: &schema{Type: []string{"string"}}}
		if s.Default.Len() > 0 {
			list.Default = s.Default.Interface()
		}
		return list
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.String:
		return &schema{Type: []string{"object", "null"}, Additional: &schema{Type: []string{"string", "null"}}}
	case t.Kind() == reflect.Map:
		return &schema{Type: []string{"object", "null"}}
	case t == durationType: // a pattern can't say a range
		none := 0.
		return &schema{Type: []string{"string", "integer", "null"}, Pattern: durationPattern, Minimum: &none, Maximum: &none, Default: setting.Text(s.Default)}
	}
	return scalar(s, t)
}

func scalar(s *setting.Setting, t reflect.Type) *schema {
	x := &schema{}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	} else {
		x.Default = s.Default.Interface()
	}
	r := s.Rule
	switch t.Kind() {
	case reflect.Bool:
		x.Type = []string{"boolean", "null"}
	case reflect.String:
		if x.Type = []string{"string", "null"}; r.OneOf != nil {
			for _, w := range r.OneOf {
				x.Enum = append(x.Enum, w)
			}
			x.Enum = append(x.Enum, nil)
		}
	case reflect.Float64:
		x.Type = []string{"number", "null"}
	default:
		if x.Type = []string{"integer", "null"}; r.Unit == "bytes" {
			x.Type, x.Pattern = append(x.Type, "string"), bytesPattern
		}
	}
	if !r.Ranged {
		return x
	}
	least, most := &schema{Minimum: &r.Lo}, &r.Hi
	if math.IsInf(r.Hi, 1) {
		most = nil
	}
	least.Maximum = most
	if r.Or == "" && !s.Optional {
		x.Minimum, x.Maximum = least.Minimum, least.Maximum
		return x
	}
	or := r.Or
	if s.Optional {
		or = "0" // the whole group may be zero
	}
	x.AnyOf = []*schema{least, {Enum: []any{json.Number(or)}}}
	return x
}
