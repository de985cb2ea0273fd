// Package reference makes docs/configuration.md and docs/kvasir.schema.json from
// the settings in the source, their tags and their comments, and docs/metrics.md from
// the metrics that are declared. Only config/gen and
// tests import it.
package reference

import (
	"bytes"

	"kvasir/config"
	"kvasir/setting"
)

// Generate returns the files by name, from the source below root.
func Generate(root string) (map[string][]byte, error) {
	list := setting.List(new(config.Config))
	words, err := readComments(root, list)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	writePage(&page, list, words)
	var figures bytes.Buffer
	writeMetrics(&figures)
	schema, err := writeSchema(list, words)
	return map[string][]byte{"docs/configuration.md": page.Bytes(), "docs/metrics.md": figures.Bytes(), "docs/kvasir.schema.json": schema}, err
}
