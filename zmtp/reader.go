package zmtp

import "encoding/binary"

const (
	firstBuffer = 2 << 10
	// keepBuffers is how many times its normal size a buffer may keep between messages.
	keepBuffers = 8
	// smallRun is how many small messages in a row give a large buffer back.
	smallRun = 256
)

type event int

const (
	evMore    event = iota // more bytes are needed
	evMessage              // reader.frames holds a whole message
	evCommand              // reader.command holds a command's body
)

type span struct{ off, n int }

// reader decodes frames where they lie: a whole message is contiguous in buf,
// so frames are slices of it and nothing is copied or allocated per message.
// The buffer doubles only when it is full of bytes that arrived.
type reader struct {
	maxFrame, maxMessage int64
	maxParts, base       int

	buf  []byte
	r, w int // buf[r:w] has arrived and is not released
	pos  int // offset from r of the first byte not decoded
	need int // bytes from r that the next decode wants
	done bool
	hot  bool // a read filled the buffer: worth growing to base
	runs int  // small messages since the last large one
	calm bool // no large message since the last relax

	parts   []span // of the message at r so far, offsets from r
	frames  [][]byte
	command []byte
}

func newReader(c *Config) *reader {
	return &reader{maxFrame: c.MaxFrame, maxMessage: c.MaxMessage, maxParts: c.MaxParts, base: c.ReadBuffer,
		buf: make([]byte, min(firstBuffer, c.ReadBuffer))}
}

// parse decodes up to the next message or command. What it returned before is
// invalid from now on.
func (d *reader) parse() (event, error) {
	if d.done {
		d.release()
	}
	for {
		b := d.buf[d.r+d.pos : d.w]
		if len(b) < 2 {
			d.need = d.pos + 2
			return evMore, nil
		}
		flags, head, size := b[0], 2, uint64(b[1])
		if flags&^(flagMore|flagLong|flagCommand) != 0 {
			return 0, protocolf("frame flags are %#02x; reserved bits must be zero", flags)
		}
		if flags&flagLong != 0 {
			if head = 9; len(b) < head {
				d.need = d.pos + head
				return evMore, nil
			}
			size = binary.BigEndian.Uint64(b[1:])
		}
		limit := uint64(d.maxFrame)
		if flags&flagCommand != 0 {
			if flags&flagMore != 0 {
				return 0, protocolf("command with the MORE flag")
			}
			limit = maxCommand
		}
		if size > limit {
			return 0, protocolf("frame claims %d bytes; accepted: up to %d", size, limit)
		}
		if int64(d.pos+head)+int64(size) > d.maxMessage {
			return 0, protocolf("message of more than %d bytes (MaxMessage)", d.maxMessage)
		}
		end := d.pos + head + int(size)
		if len(b) < head+int(size) {
			d.need = end
			return evMore, nil
		}
		start := d.pos + head
		d.pos = end
		if flags&flagCommand != 0 {
			d.command = d.buf[d.r+start : d.r+end : d.r+end]
			d.done = len(d.parts) == 0 // libzmq may put a PING between two parts
			return evCommand, nil
		}
		if len(d.parts) == d.maxParts {
			return 0, protocolf("message of more than %d parts (MaxParts)", d.maxParts)
		}
		d.parts = append(d.parts, span{start, int(size)})
		if flags&flagMore != 0 {
			continue
		}
		d.frames = d.frames[:0]
		for _, p := range d.parts {
			at := d.r + p.off
			d.frames = append(d.frames, d.buf[at:at+p.n:at+p.n])
		}
		d.done = true
		return evMessage, nil
	}
}

// release frees the bytes of the last message or command.
func (d *reader) release() {
	if d.pos > d.base {
		d.runs, d.calm = 0, false
	} else {
		d.runs++
	}
	d.skip(d.pos)
	d.pos, d.done = 0, false
	d.parts = d.parts[:0]
}

// relax is called now and then: a large buffer that was not needed since the
// call before is given back, however few messages came.
func (d *reader) relax() {
	if d.calm {
		d.runs = max(d.runs, smallRun)
	}
	d.calm = true
}

// skip drops n bytes, for the greeting.
func (d *reader) skip(n int) {
	d.r += n
	if d.r == d.w {
		d.r, d.w = 0, 0
	}
}

// space returns where to read to; call only after parse said evMore (or
// before the first parse).
func (d *reader) space() []byte {
	to := d.buf
	switch {
	case d.hot && len(d.buf) < d.base:
		to = make([]byte, min(4*len(d.buf), d.base))
	case d.w > 0:
	case len(d.buf) > keepBuffers*d.base, len(d.buf) > d.base && d.runs >= smallRun:
		to = make([]byte, d.base)
	}
	d.hot = false
	if &to[0] != &d.buf[0] || d.r > 0 && d.r+d.need > len(d.buf) || d.w == len(d.buf) {
		copy(to, d.buf[d.r:d.w])
		clear(d.frames) // or they would keep the old buffer alive
		d.command = nil
		d.buf, d.r, d.w = to, 0, d.w-d.r
	}
	if d.w == len(d.buf) {
		d.buf = append(d.buf, make([]byte, len(d.buf))...)
	}
	return d.buf[d.w:]
}

// filled tells that n bytes were read into space.
func (d *reader) filled(n int) {
	d.w += n
	d.hot = d.hot || d.w == len(d.buf)
}
