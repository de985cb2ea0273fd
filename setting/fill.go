package setting

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Fill gives every field of *p, a pointer to a struct, its default. Fields without
// a key are left alone.
func Fill(p any) { fill(reflect.ValueOf(p).Elem()) }

// Defaults returns a T that is filled.
func Defaults[T any]() (v T) {
	Fill(&v)
	return v
}

func fill(v reflect.Value) {
	for i := range v.NumField() {
		f, x := v.Type().Field(i), v.Field(i)
		if key(f) == "" {
			continue
		}
		if x.Kind() == reflect.Struct {
			fill(x)
			continue
		}
		if text, ok := f.Tag.Lookup("default"); ok {
			if err := set(x, text); err != nil {
				panic(fmt.Sprintf("setting: %s.%s: default %q: %v", v.Type(), f.Name, text, err))
			}
		}
	}
}

// set reads text, as a tag has it, into x.
func set(x reflect.Value, text string) error {
	switch x.Kind() {
	case reflect.Pointer:
		p := reflect.New(x.Type().Elem())
		x.Set(p)
		return set(p.Elem(), text)
	case reflect.String:
		x.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		x.SetBool(b)
		return err
	case reflect.Slice:
		if x.Type().Elem().Kind() != reflect.String {
			return fmt.Errorf("no text can be a %s", x.Type())
		}
		x.Set(reflect.ValueOf(strings.Split(text, ",")))
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		x.SetFloat(n)
		return err
	case reflect.Int, reflect.Int64:
		n, err := integer(x.Type(), text)
		x.SetInt(n)
		return err
	default:
		return fmt.Errorf("no text can be a %s", x.Type())
	}
	return nil
}

func integer(t reflect.Type, text string) (int64, error) {
	if t == durationType {
		d, err := time.ParseDuration(text)
		return int64(d), err
	}
	if n, ok := binary(text); ok {
		return n, nil
	}
	return strconv.ParseInt(text, 10, 64)
}
