package eventbench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// hello is what a publisher says first: ZMTP 3.0, and READY.
func hello() []byte {
	h := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0, 'N', 'U', 'L', 'L'}, make([]byte, 48)...)
	ready := append([]byte("\x05READY\x0bSocket-Type"), 0, 0, 0, 3, 'P', 'U', 'B')
	return append(append(h, 4, byte(len(ready))), ready...)
}

// newScript writes what a publisher sends: hello, then a message
// for each batch. A batch is one store, with the removals of an older
// sequence before it, as an engine under pressure sends them.
func newScript(c Config, target int) *script {
	s := &script{ready: make(chan struct{}), start: make(chan struct{}), end: make(chan struct{}), room: make(chan struct{}, 1)}
	s.hello = hello()
	rng := rand.New(rand.NewPCG(uint64(target), 7))
	var e encoder
	e.sglang, e.array = c.Dialect == "sglang-map", c.Dialect == "vllm-array"
	handles := make([][]uint64, c.Sequences) // of each sequence
	seq := uint64(0)
	for n := range c.Sequences {
		var parent uint64
		for len(handles[n]) < c.Blocks {
			s.marks = append(s.marks, mark{len(s.data), s.blocks})
			e.begin(1.7e9 + float64(seq)*0.02)
			if old := n - c.Resident; old >= 0 {
				for range min(c.EventBlocks, len(handles[old])) { // the tail of the chain first
					last := len(handles[old]) - 1
					e.remove(handles[old][last])
					handles[old] = handles[old][:last]
					s.blocks++
				}
			}
			k := min(c.EventBlocks, c.Blocks-len(handles[n]))
			hashes := make([]uint64, k)
			for i := range hashes {
				hashes[i] = rng.Uint64() | 1<<63
			}
			e.store(parent, hashes, c.BlockSize, func() uint32 { return uint32(rng.ExpFloat64()*15000) % 151680 })
			parent = hashes[k-1]
			handles[n] = append(handles[n], hashes...)
			s.blocks += k
			payload := e.end()
			s.events += e.count
			s.data = appendMessage(s.data, []byte("kv-events"), binary.BigEndian.AppendUint64(nil, seq), payload)
			seq++
		}
	}
	return s
}

// appendMessage appends the frames of a ZMTP message.
func appendMessage(dst []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		more := byte(0)
		if i < len(frames)-1 {
			more = 1
		}
		if len(f) < 256 {
			dst = append(dst, more, byte(len(f)))
		} else {
			dst = binary.BigEndian.AppendUint64(append(dst, more|2), uint64(len(f)))
		}
		dst = append(dst, f...)
	}
	return dst
}

// An encoder writes batches of events as msgspec does.
type encoder struct {
	sglang, array bool

	ts    float64
	body  []byte
	count int
}

func (e *encoder) begin(ts float64) { e.ts, e.body, e.count = ts, e.body[:0], 0 }

func (e *encoder) end() []byte {
	out := binary.BigEndian.AppendUint64([]byte{0x93, 0xcb}, math.Float64bits(e.ts))
	out = append(header(out, e.count, 0x90, 0xdc), e.body...)
	return append(out, 0)
}

func (e *encoder) str(s string) {
	if len(s) < 32 {
		e.body = append(e.body, 0xa0|byte(len(s)))
	} else {
		e.body = append(e.body, 0xd9, byte(len(s)))
	}
	e.body = append(e.body, s...)
}

func (e *encoder) key(s string) {
	if !e.array {
		e.str(s)
	}
}

func (e *encoder) hash(h uint64) {
	if e.sglang { // signed
		e.body = binary.BigEndian.AppendUint64(append(e.body, 0xd3), h)
		return
	}
	e.body = binary.BigEndian.AppendUint64(append(e.body, 0xcf), h)
}

func (e *encoder) remove(h uint64) {
	e.count++
	switch {
	case e.array:
		e.body = append(e.body, 0x94)
	case e.sglang:
		e.body = append(e.body, 0x83)
	default:
		e.body = append(e.body, 0x84)
	}
	e.key("type")
	e.str("BlockRemoved")
	e.key("block_hashes")
	e.body = append(e.body, 0x91)
	e.hash(h)
	e.key("medium")
	e.str("GPU")
	if !e.sglang {
		e.key("group_idx")
		e.body = append(e.body, 0)
	}
}

// store writes a BlockStored; parent 0 is none.
func (e *encoder) store(parent uint64, hashes []uint64, blockSize int, token func() uint32) {
	e.count++
	switch {
	case e.array:
		e.body = append(e.body, 0x9c)
	case e.sglang:
		e.body = append(e.body, 0x87)
	default:
		e.body = append(e.body, 0x8b)
	}
	e.key("type")
	e.str("BlockStored")
	e.key("block_hashes")
	e.body = header(e.body, len(hashes), 0x90, 0xdc)
	for _, h := range hashes {
		e.hash(h)
	}
	e.key("parent_block_hash")
	if parent == 0 {
		e.body = append(e.body, 0xc0)
	} else {
		e.hash(parent)
	}
	e.key("token_ids")
	n := len(hashes) * blockSize
	e.body = header(e.body, n, 0x90, 0xdc)
	for range n {
		e.body = appendUint(e.body, token())
	}
	e.key("block_size")
	e.body = appendUint(e.body, uint32(blockSize))
	e.key("lora_id")
	e.body = append(e.body, 0xc0)
	e.key("medium")
	e.str("GPU")
	if e.sglang {
		return
	}
	e.key("lora_name")
	e.body = append(e.body, 0xc0)
	e.key("extra_keys")
	e.body = header(e.body, len(hashes), 0x90, 0xdc)
	for range hashes {
		e.body = append(e.body, 0xc0)
	}
	e.key("group_idx")
	e.body = append(e.body, 0)
	e.key("kv_cache_spec_kind")
	e.str("full_attention")
	if e.array {
		e.body = append(e.body, 0xc0)
	}
}

// header appends the header of an array in its shortest form.
func header(dst []byte, n int, fix, h16 byte) []byte {
	switch {
	case n < 16:
		return append(dst, fix|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, h16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, h16+1), uint32(n))
}

func appendUint(dst []byte, v uint32) []byte {
	switch {
	case v < 0x80:
		return append(dst, byte(v))
	case v <= 0xff:
		return append(dst, 0xcc, byte(v))
	case v <= 0xffff:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0xce), v)
}
