package zmtp

import (
	"io"
	"time"
)

// alwaysReady is a closed channel.
var alwaysReady = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// write is the writer's goroutine. It sends a PING each interval whatever the
// reader does.
func (c *conn) write() {
	var (
		control, scratch []byte
		batch            [][]byte
		ticks            <-chan time.Time
		ready            = c.ready
	)
	for {
		control, batch = c.out.take(control[:0], batch[:0])
		var busy chan struct{} // nil: nothing to write, so the select waits
		if len(control)+len(batch) > 0 {
			busy = alwaysReady
		}
		select {
		case <-c.done:
			return
		case <-busy:
		case <-c.out.wake:
		case <-ready:
			ready = nil
			t := time.NewTicker(c.cfg.Heartbeat)
			defer t.Stop()
			ticks = t.C
		case <-ticks:
			control = appendPing(control, c.cfg.silence())
		}
		var err error
		if scratch, err = writeAll(c.nc, scratch, control, batch); err != nil {
			c.fail(err)
			return
		}
		c.out.written(batch)
		clear(batch)
	}
}

// writeAll writes control and then the batch, small messages together. It
// returns the scratch buffer for the next time.
func writeAll(w io.Writer, scratch, control []byte, batch [][]byte) ([]byte, error) {
	switch {
	case len(batch) == 0 && len(control) == 0:
		return scratch, nil
	case len(batch) == 0: // an idle connection needs no scratch
		_, err := w.Write(control)
		return scratch, err
	}
	scratch = append(scratch[:0], control...)
	for _, m := range batch {
		if len(scratch)+len(m) > writeBatch && len(scratch) > 0 {
			if _, err := w.Write(scratch); err != nil {
				return scratch, err
			}
			scratch = scratch[:0]
		}
		if len(m) >= writeBatch/2 {
			if len(scratch) > 0 {
				if _, err := w.Write(scratch); err != nil {
					return scratch, err
				}
				scratch = scratch[:0]
			}
			if _, err := w.Write(m); err != nil {
				return scratch, err
			}
			continue
		}
		scratch = append(scratch, m...)
	}
	if len(scratch) > 0 {
		if _, err := w.Write(scratch); err != nil {
			return scratch, err
		}
	}
	return scratch, nil
}
