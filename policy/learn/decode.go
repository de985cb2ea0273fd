package learn

import "kvasir/kv"

const (
	meanMemory = 100000 // answers, of which the mean length is
	minGaps    = 8      // between tokens of one answer: less is noise
	maxStalled = .8     // of the time of an answer: what is left then is mostly the error of the prediction
)

// Done learns from the gaps between tokens and the length of the answer.
func (f *Fleet) Done(o *kv.Done) {
	if o.Failed || o.FromPeer || o.Output <= 0 {
		return
	}
	f.output.Add(float64(o.Output), meanMemory)
	// Prefills of others between the tokens are no part of a decode step, nor is
	// the token that the last step of each has made beside.
	gaps := o.Output - 1 - o.Prefills
	if !f.learn || gaps < minGaps || o.Streaming <= 0 || o.Requests <= 0 {
		return
	}
	stream, stalled := o.Streaming.Seconds(), max(0, o.Stalled.Seconds())
	if stalled > maxStalled*stream {
		return
	}
	y := (stream - stalled) / float64(gaps)
	x := [3]float64{1, o.Requests, o.Tokens}
	var own *Ratio
	if t := f.target(o.Target); t != nil {
		own, t.decodeAt = &t.decode, o.Now
	}
	f.decode.observe(x, y, own, known.decodePart(), 1)
	f.refresh()
}
