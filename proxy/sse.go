package proxy

import "bytes"

// maxEvent bounds what is kept of one event, in bytes. A longer one is passed on
// like any other, but not understood.
const maxEvent = 256 << 10

// An eventReader finds the events in a stream of server-sent events while its bytes
// go past (WHATWG HTML, section 9.2.6). It looks on: whatever it makes of the
// bytes, they are forwarded as they are.
type eventReader struct {
	// data is called with the data of each event, without a copy where one read
	// has it whole. It is nil for an event longer than maxEvent.
	data func(data []byte)

	kept    []byte // data of the open event, from earlier reads or several lines
	line    []byte // the start of the line that a read broke off
	cut     bool   // a read broke off a line
	comment bool   // and that line is a comment
	has     bool   // the open event has data
	long    bool   // and more than maxEvent
	begun   bool   // the open event has any field
	lf      bool   // the last byte was a CR: a LF may belong to it
	primed  bool   // the first line has been seen: no byte order mark any more
}

// between reports whether a new event could be written here: no event is open,
// no line has begun.
func (e *eventReader) between() bool { return !e.cut && !e.begun }

// feed looks at the next bytes of the stream. It keeps no part of p.
func (e *eventReader) feed(p []byte) {
	var here []byte // data of the open event, as long as it is one line within p
	for len(p) > 0 {
		if e.lf {
			e.lf = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		n := bytes.IndexByte(p, '\n')
		if n < 0 {
			n = len(p)
		}
		if cr := bytes.IndexByte(p[:n], '\r'); cr >= 0 {
			n = cr
		}
		if n == len(p) { // the line goes on in the next read
			if !e.cut {
				e.cut, e.comment = true, p[0] == ':'
			}
			if !e.comment {
				e.line = e.keep(e.line, p)
			}
			break
		}
		line := p[:n]
		e.lf = p[n] == '\r'
		p = p[n+1:]
		switch {
		case !e.cut:
			e.field(line, &here, true)
		case e.comment:
			e.cut = false
		default:
			e.cut = false
			line = e.keep(e.line, line)
			e.line = line[:0]
			if e.long {
				e.begun, e.has = true, true
			} else {
				e.field(line, &here, false)
			}
		}
	}
	if here != nil {
		e.kept = append(e.kept[:0], here...)
	}
}

// keep appends p to what is kept of the open event, unless that is too long by now.
func (e *eventReader) keep(dst, p []byte) []byte {
	if e.long || len(dst)+len(p) > maxEvent {
		e.long = true
		return dst[:0]
	}
	return append(dst, p...)
}

var (
	bom    = []byte("\xef\xbb\xbf")
	noData = []byte{}
)

// field takes one line without its end. stable is true if its bytes will stay as
// they are until the end of the read.
func (e *eventReader) field(line []byte, here *[]byte, stable bool) {
	if !e.primed {
		e.primed = true
		line = bytes.TrimPrefix(line, bom)
	}
	if len(line) == 0 {
		if e.has {
			data := *here
			if data == nil {
				data = e.kept
			}
			if e.long {
				data = nil
			} else if data == nil {
				data = noData
			}
			e.data(data)
		}
		*here = nil
		e.kept = e.kept[:0]
		e.has, e.begun, e.long = false, false, false
		return
	}
	if line[0] == ':' {
		return
	}
	e.begun = true
	value, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok || len(value) > 0 && value[0] != ':' {
		return
	}
	if len(value) > 0 {
		value = bytes.TrimPrefix(value[1:], []byte(" "))
	}
	switch {
	case !e.has && stable:
		*here = value
	case !e.has:
		e.kept = e.keep(e.kept[:0], value)
	default: // a second line of data
		if *here != nil {
			e.kept = e.keep(e.kept[:0], *here)
			*here = nil
		}
		e.kept = e.keep(e.keep(e.kept, []byte("\n")), value)
	}
	e.has = true
}
