package router

import (
	"fmt"
	"time"

	"kvasir/config"
	"kvasir/metrics"
	"kvasir/receipt"
	"kvasir/sched"
)

// openReceipts begins the file of receipts, if that is configured.
func (r *Router) openReceipts() (err error) {
	c := receiptsConfig(&r.cfg)
	if c.File == "" {
		return nil
	}
	enc := receipt.NewEncoder(receipt.NewBlind(), time.Now(), r.version)
	if r.receipts, err = receipt.Open(c, enc, r.log); err != nil {
		r.receipts = nil
		return fmt.Errorf("receipts_file: %w", err)
	}
	r.log.Info("receipts are kept", "file", c.File, "rotated_at_bytes", c.MaxBytes, "rotated_kept", c.Keep)
	return nil
}

func receiptsConfig(c *config.Config) receipt.Config {
	return receipt.Config{File: c.ReceiptsFile, MaxBytes: c.ReceiptsFileBytes, Keep: c.ReceiptsFileKeep}
}

// ended gets the receipt of each decision whose request is over: for the log, and to
// compare the length of a prompt that was tokenized here with the engine's.
func (r *Router) ended(x *sched.Receipt) {
	if r.receipts != nil {
		r.receipts.Add(x)
	}
	if x.Served && x.Source == "local" && r.library != nil {
		r.library.Local.Served(x.Model, x.Tokens, x.ServedPrompt)
	}
}

// receiptStats returns what became of the log of receipts, nil if there is none.
func (r *Router) receiptStats() func() metrics.Receipts {
	if r.receipts == nil {
		return nil
	}
	return func() metrics.Receipts {
		s := r.receipts.Stats()
		return metrics.Receipts{Written: s.Written, Slow: s.Slow, Failed: s.Failed, Overwritten: r.sched.ReceiptsOverwritten()}
	}
}
