// Package docs has the documents that the binary carries.
package docs

import _ "embed"

// Schema is the JSON schema of the configuration file (kvasir check --schema). It
// is made from the source by config/reference.
//
//go:embed kvasir.schema.json
var Schema []byte
