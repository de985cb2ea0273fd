package engine

import "bytes"

// liveFrames takes a message of a subscription apart. The form of every
// engine that numbers its batches is [topic, sequence, payload]; some
// publishers send [topic, payload] or [payload] only. kind is gotUnreadable for
// a message without frames.
func liveFrames(frames [][]byte) (kind entryKind, topic []byte, seq uint64, payload []byte) {
	n := len(frames)
	if n == 0 {
		return gotUnreadable, nil, 0, nil
	}
	payload = frames[n-1]
	if n > 1 {
		topic = frames[n-min(n, 3)]
	}
	if n >= 3 {
		if seq, ok := number(frames[n-2]); ok {
			return gotBatch, topic, seq, payload
		}
	}
	return gotPlain, topic, 0, payload
}

var endOfReplay = bytes.Repeat([]byte{0xff}, 8)

// replayFrames takes an answer to a replay request apart: sequence and payload
// are the last two frames, whatever comes before (delimiter and topic since vLLM
// 0.28, delimiter before and in SGLang, nothing where the socket has stripped
// it). end: this is the end marker.
func replayFrames(frames [][]byte) (seq uint64, payload []byte, end, ok bool) {
	n := len(frames)
	if n < 2 {
		return 0, nil, false, false
	}
	if bytes.Equal(frames[n-2], endOfReplay) {
		return 0, nil, true, true
	}
	seq, ok = number(frames[n-2])
	return seq, frames[n-1], false, ok
}

// number reads a big-endian number of 1 to 8 bytes.
func number(p []byte) (uint64, bool) {
	if len(p) == 0 || len(p) > 8 {
		return 0, false
	}
	var v uint64
	for _, b := range p {
		v = v<<8 | uint64(b)
	}
	return v, true
}
