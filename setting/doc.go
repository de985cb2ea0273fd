// Package setting lets a setting be declared once, as one field of a struct:
//
//	// Patience is how long a request may wait in the queue.
//	Patience time.Duration `yaml:"patience" default:"5s" range:"10ms..1h" or:"0s: for ever"`
//
// The comment is its meaning, and the tags are all else: Fill reads the default,
// Check reads what is accepted, and docs/configuration.md and the JSON schema are
// made of the same tags and comment (config/reference). So a default that is printed is
// the one in force, and a range that is documented is the one that is checked.
//
// Tags:
//
//	yaml     the key
//	default  the value that Fill gives; without it the zero value. Of a list: "a,b"
//	range    LO..HI, both accepted; HI may be left out. 1Ki, 1Mi, 1Gi and 1Ti are understood
//	or       one more value that is accepted, and what it means: "0: no bound"
//	oneof    the accepted words, as "requests|tokens"; "*" asks the struct's Choices
//	want     what is accepted, in words, where the struct's own Check decides
//	unit     of a plain number: "bytes", "tokens", "s"
//	example  a value for the reference, where the made-up one would be silly
//	optional on a struct: its zero value is accepted, and means "not given"
//
// A rule over several fields is a method Check on the struct, see Checker.
package setting
