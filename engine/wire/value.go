package wire

import (
	"encoding/binary"
	"math"
	"strings"

	"kvasir/kv"
)

// strToken stands for a token that is a string (TensorRT-LLM: content that is no
// vocabulary entry). What it is, is in the block's Extras.
const strToken = math.MaxUint32

// readHandle reads a block hash and normalises it to 64 bits: an unsigned int as
// it is, a signed one as two's complement, bytes by their last eight, big-endian
// (what vLLM itself sends when told to send ints).
func readHandle(r *reader) (kv.Handle, bool) {
	c := r.peek()
	switch {
	case c == 0xcf:
		v, ok := r.uintAt(8)
		return kv.Handle(v), ok
	case isBin(c):
		p, ok := r.bytes()
		if !ok || len(p) == 0 {
			return 0, false
		}
		if len(p) >= 8 {
			return kv.Handle(binary.BigEndian.Uint64(p[len(p)-8:])), true
		}
		var v uint64
		for _, x := range p {
			v = v<<8 | uint64(x)
		}
		return kv.Handle(v), true
	}
	v, _, ok := r.integer()
	return kv.Handle(v), ok
}

func readHandles(r *reader, dst []kv.Handle) ([]kv.Handle, bool) {
	if r.isNil() {
		return dst, true
	}
	n, ok := r.arrayLen()
	if !ok {
		return dst, false
	}
	k := 0
	for b := r.b; k < n && len(b)-r.i >= 9 && is64(b[r.i]); k++ {
		dst = append(dst, kv.Handle(binary.BigEndian.Uint64(b[r.i+1:])))
		r.i += 9
	}
	for ; k < n; k++ {
		h, ok := readHandle(r)
		if !ok {
			return dst, false
		}
		dst = append(dst, h)
	}
	return dst, true
}

// readTokens reads token ids: ints, [t, t+1] pairs (SGLang with Eagle: the first
// counts), or strings (TensorRT-LLM), whose number it returns.
func readTokens(r *reader, dst []uint32) (_ []uint32, strs int, _ bool) {
	if r.isNil() {
		return dst, 0, true
	}
	n, ok := r.arrayLen()
	if !ok {
		return dst, 0, false
	}
	// The ints in front, in the forms that a vocabulary of up to 2^32 takes: the
	// hot loop of the whole decoder. Most ids take three bytes, so four of them are
	// tried at a time.
	b, i := r.b, r.i
	k := 0
loop:
	for k < n {
		if n-k >= 4 && len(b)-i >= 12 {
			p := (*[12]byte)(b[i:])
			x, y := binary.BigEndian.Uint64(p[:8]), binary.BigEndian.Uint32(p[8:])
			if x&0xff0000ff0000ff00 == 0xcd0000cd0000cd00 && y&0x00ff0000 == 0x00cd0000 {
				dst = append(dst, uint32(x>>40)&0xffff, uint32(x>>16)&0xffff, uint32(x)<<8&0xff00|y>>24, y&0xffff)
				i += 12
				k += 4
				continue
			}
		}
		for end := min(k+4, n); k < end; k++ {
			if i == len(b) {
				break loop
			}
			c := b[i]
			switch {
			case c == 0xcd && len(b)-i >= 3:
				dst = append(dst, uint32(b[i+1])<<8|uint32(b[i+2]))
				i += 3
			case c < 0x80:
				dst = append(dst, uint32(c))
				i++
			case c == 0xce && len(b)-i >= 5:
				dst = append(dst, binary.BigEndian.Uint32(b[i+1:]))
				i += 5
			case c == 0xcc && len(b)-i >= 2:
				dst = append(dst, uint32(b[i+1]))
				i += 2
			default:
				break loop
			}
		}
	}
	r.i = i
	for ; k < n; k++ {
		t, str, ok := readToken(r)
		if !ok {
			return dst, 0, false
		}
		if str {
			strs++
		}
		dst = append(dst, t)
	}
	return dst, strs, true
}

func readToken(r *reader) (t uint32, str, ok bool) {
	c := r.peek()
	switch {
	case isArray(c):
		n, ok := r.arrayLen()
		if !ok || n == 0 {
			return 0, false, false
		}
		v, ok := r.small(0, math.MaxUint32)
		return uint32(v), false, ok && r.skip(n-1)
	case isStr(c), isBin(c):
		_, ok := r.bytes()
		return strToken, true, ok
	}
	v, ok := r.small(0, math.MaxUint32)
	return uint32(v), false, ok
}

func readCopies(r *reader, dst []int32) ([]int32, bool) {
	n, ok := r.arrayLen()
	if !ok {
		return dst, false
	}
	for range n {
		v, ok := r.small(0, math.MaxInt32)
		if !ok {
			return dst, false
		}
		dst = append(dst, int32(v))
	}
	return dst, true
}

func smallOrNil(r *reader, max int64) (int32, bool) {
	if r.isNil() {
		return 0, true
	}
	v, ok := r.small(0, max)
	return int32(v), ok
}

func bytesOrNil(r *reader) ([]byte, bool) {
	if r.isNil() {
		return nil, true
	}
	return r.bytes()
}

func readTier(r *reader) (t kv.Tier, told, ok bool) {
	p, ok := bytesOrNil(r)
	return tierOf(p), len(p) > 0, ok
}

// readComponents reads SGLang's component_types, which says which state of a hybrid
// model a store brought: true if it names nothing but sliding windows and Mamba.
func readComponents(r *reader) (noDense, ok bool) {
	if r.isNil() {
		return false, true
	}
	n, ok := r.arrayLen()
	noDense = n > 0
	for range n {
		p, isStr := r.bytes()
		if !isStr {
			return false, false
		}
		name := strings.ToLower(string(p))
		noDense = noDense && (strings.HasPrefix(name, "swa") || strings.HasPrefix(name, "mamba"))
	}
	return noDense, ok
}

// tierOf maps a medium. vLLM says "GPU" on every kind of machine, old versions
// say nothing; SGLang has CPU_PINNED, DISK and EXTERNAL, others have more names
// for what is slow; SGLang's CPU_TIER2, of early 2026, is storage.
func tierOf(medium []byte) kv.Tier {
	switch string(medium) { // without allocation
	case "", "GPU":
		return kv.GPU
	case "CPU", "CPU_PINNED":
		return kv.Host
	}
	m := strings.ToLower(string(medium))
	for _, p := range [...]string{"gpu", "cuda", "rocm", "hip", "xpu", "hpu", "npu", "tpu", "device", "hbm"} {
		if strings.HasPrefix(m, p) {
			return kv.GPU
		}
	}
	if m == "cpu_tier2" {
		return kv.Disk
	}
	if strings.HasPrefix(m, "cpu") || strings.HasPrefix(m, "host") || strings.HasPrefix(m, "dram") {
		return kv.Host
	}
	return kv.Disk
}

// attentionOf maps a kv_cache_spec_kind. Versions without one have dense groups,
// or hybrid ones that can't be told apart.
func attentionOf(spec []byte) kv.Attention {
	switch string(spec) {
	case "", "full_attention", "mla_attention", "sink_full_attention":
		return kv.Dense
	case "sliding_window", "sliding_window_mla":
		return kv.Sliding
	}
	return kv.Sparse
}
