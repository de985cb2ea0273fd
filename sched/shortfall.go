package sched

import (
	"fmt"
	"math/bits"

	"kvasir/kv"
)

// A shortfall watches how much less of one target's cache is served than was
// predicted, over the requests that show it. Numbers in, numbers out.
//
// The first time that it is much, blocks may have gone without our hearing of it, and
// what is known is filled afresh. If it comes back then, it is how this engine is: one
// with recurrent layers holds 320 tokens of a prompt and serves 0, as it has no state
// of that place. Then its share is learned and its overlaps are priced with it: at
// a share of 1/4, 320 held tokens count as 80. It is filled afresh again after 8 such
// alarms, then 64, 512, ...; until 32 requests in a row have been served as the blocks say.
type shortfall struct {
	phantoms uint32 // a bit for each of the latest, the newest lowest: served clearly less than predicted
	n        int    // of them compared since the last alarm
	over     uint64 // tokens, since the last alarm

	alarms    uint32 // since it was last healthy
	refill    uint32 // at which of them to fill afresh; 0: at the first
	healthy   int    // requests in a row that were served what was promised
	predicted float64
	served    float64 // of predicted; both forget
}

// An alarm needs driftAlarm phantoms among the latest driftWindow requests. An
// engine under pressure evicts between decision and prefill, so one is nothing.
const (
	driftWindow  = 32
	driftAlarm   = 16
	driftBackoff = 8
)

// add takes one comparison of what the index promised with what was served. why says
// that there is an alarm, or that the shortfall is the engine's from now on; refill that what is known should be filled afresh. Clearly
// less: by more than two blocks and a tenth of what was promised.
func (w *shortfall) add(promised, served, blockSize int) (why string, refill bool) {
	over := promised - served
	w.phantoms <<= 1
	w.n++
	w.predicted += (float64(promised) - w.predicted) / driftWindow
	w.served += (float64(min(served, promised)) - w.served) / driftWindow
	switch {
	case over > 2*blockSize && 10*over > promised:
		w.phantoms |= 1
		w.over += uint64(over)
		w.healthy = 0
	case promised > 2*blockSize: // less can't be a phantom, and shows nothing
		if w.healthy++; w.healthy >= driftWindow && w.alarms > 0 {
			*w = shortfall{}
			return "", false
		}
	}
	n := bits.OnesCount32(w.phantoms)
	if n < driftAlarm {
		return "", false
	}
	why = fmt.Sprintf("%d of the latest %d requests were served clearly less than predicted, %d tokens in all", n, min(w.n, driftWindow), w.over)
	w.phantoms, w.n, w.over = 0, 0, 0
	w.alarms++
	if refill = w.alarms >= max(w.refill, 1); refill {
		w.refill = max(w.refill, 1) * driftBackoff
	} else if w.alarms > 2 {
		why = "" // it was told
	}
	return why, refill
}

// learned says that the shortfall is taken for the engine's own.
func (w *shortfall) learned() bool { return w.alarms > 1 }

// share returns how much of what the blocks say is served, 0 to 1.
func (w *shortfall) share() float64 {
	if !w.learned() || w.predicted <= 0 {
		return 1
	}
	return w.served / w.predicted
}

// price returns what o is worth.
func (w *shortfall) price(o kv.Overlap) kv.Overlap {
	f := w.share()
	if f == 1 {
		return o
	}
	part := func(n int32) int32 { return int32(f * float64(n)) }
	return kv.Overlap{GPU: part(o.GPU), Host: part(o.Host), Disk: part(o.Disk), Predicted: part(o.Predicted)}
}
