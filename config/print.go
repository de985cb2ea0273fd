package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"kvasir/policy"
	"kvasir/setting"
)

// Resolved returns what is in force where c is given: the policy that auto or a
// preset stands for, and each value that is left to something else. Resolving twice
// changes nothing more, and a router does the same under both.
func (c Config) Resolved() Config {
	c.PollMetrics = c.MetricsEvery()
	c.Policy = c.Policy.Resolved()
	c.Tokens.Files = c.Tokens.Files.Resolved()
	return c
}

// MetricsEvery returns how often engines are asked for their load figures: often
// if the policy decides by them, as figures a second old double its waiting times
// (docs/experiments.md).
func (c *Config) MetricsEvery() time.Duration {
	every := 5 * time.Second
	if policy.Needs(c.Policy).Engine {
		every = 100 * time.Millisecond
	}
	return cmp.Or(c.PollMetrics, every)
}

// YAML returns c as a file that Load reads as c again.
func (c Config) YAML() ([]byte, error) {
	return yaml.MarshalWithOptions(c, yaml.Indent(2), yaml.CustomMarshaler(func(d time.Duration) ([]byte, error) {
		return []byte(setting.Duration(d)), nil
	}))
}

// MarshalJSON has the keys of the YAML, in their order, and values that Load reads
// likewise: JSON is YAML.
func (c Config) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := writeJSON(&b, reflect.ValueOf(c))
	return b.Bytes(), err
}

func writeJSON(b *bytes.Buffer, v reflect.Value) error {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return writeValue(b, setting.Text(v))
	case v.Kind() == reflect.Struct:
		return writeStruct(b, v)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, v.Index(i)); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case v.Kind() == reflect.Slice && v.IsNil():
		b.WriteString("[]")
		return nil
	case v.Kind() == reflect.Map && v.IsNil():
		b.WriteString("{}")
		return nil
	}
	return writeValue(b, v.Interface())
}

func writeStruct(b *bytes.Buffer, v reflect.Value) error {
	b.WriteByte('{')
	first := true
	for i := range v.NumField() {
		key, omit, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		if key == "" || omit == "omitempty" && v.Field(i).IsZero() {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.WriteString(`"` + key + `":`)
		if err := writeJSON(b, v.Field(i)); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeValue(b *bytes.Buffer, v any) error {
	text, err := json.Marshal(v)
	b.Write(text)
	return err
}
