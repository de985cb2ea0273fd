// Command gen writes what package reference makes: make docs.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"kvasir/config/reference"
)

func main() {
	root := flag.String("root", ".", "root of the repository")
	flag.Parse()
	files, err := reference.Generate(*root)
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(*root, name), text, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
