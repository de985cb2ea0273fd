package doctor

import (
	"kvasir/config"
	"kvasir/receipt"
)

// CheckFiles looks whether serve could write the files that it is told to.
func CheckFiles(cfg config.Config) []Finding {
	if cfg.ReceiptsFile == "" {
		return nil
	}
	line := Line{What: "writable", Says: "yes"}
	if err := receipt.Check(cfg.ReceiptsFile); err != nil {
		line.Says, line.Bad = err.Error(), true
		line.Fix = "its folder must exist, and this user may make files there"
	}
	return []Finding{{Engine: "receipts_file: " + cfg.ReceiptsFile, Lines: []Line{line}}}
}
