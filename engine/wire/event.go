package wire

import (
	"fmt"

	"kvasir/kv"
)

// event decodes one event. It fails only if the payload can't be read any further.
func (d *Decoder) event(r *reader, b *Batch) bool {
	s := d.s
	start := r.i
	f, m := &s.fields, marks{len(s.tokens), len(s.handles), len(s.extras), len(s.copies)}
	known := !d.slow && d.shaped(r, f, m)
	c := byte(0)
	if !known {
		*f, s.trace.n = fields{marks: m}, 0
		c = r.peek()
	}
	switch {
	case known:
	case isArray(c):
		if !d.array(r, f) {
			return false
		}
	case isMap(c):
		if !d.mapping(r, f) {
			return false
		}
	default: // whatever it is, it is no event
		f.tag = foreign
		if !r.skip(1) {
			return false
		}
	}
	ok := false
	if f.bad == fOther {
		switch f.tag {
		case stored:
			ok = d.stored(r.b, f, b)
		case removed:
			ok = d.removed(f, b)
		case moved:
			ok = d.moved(f, b)
		case cleared:
			ok = d.cleared(f)
		}
	}
	s.again = repeat{}
	if ok {
		d.Stats.Events++
		if !known {
			s.shapes.learn(&s.trace, r.b, start, r.i, f)
		}
		if f.tag == removed && f.hashEnd > 0 && !f.hasCopies {
			s.again = repeat{start: start, hash: f.hashAt, hashEnd: f.hashEnd, end: r.i}
		}
		return true
	}
	s.tokens, s.handles, s.extras, s.copies = s.tokens[:f.tokens], s.handles[:f.handles], s.extras[:f.extras], s.copies[:f.copies]
	switch f.tag {
	case foreign:
		d.Stats.Unknown++
		return true
	case stored:
		b.Missed++
	default:
		b.Lost++
	}
	d.Stats.Malformed++
	what := fieldNames[f.bad]
	if f.bad == fOther {
		what = "type"
	}
	d.LastError = fmt.Errorf("wire: event at byte %d to %d of the payload: field %q can't be read", start, r.i, what)
	return true
}

// shaped decodes an event that looks like one before.
func (d *Decoder) shaped(r *reader, f *fields, m marks) bool {
	s := d.s
	for _, sh := range s.shapes.list {
		if sh.fits(r) {
			if sh.match(d, r, f, m) {
				return true
			}
			s.tokens, s.handles, s.copies = s.tokens[:m.tokens], s.handles[:m.handles], s.copies[:m.copies]
		}
	}
	return false
}

func (d *Decoder) stored(payload []byte, f *fields, b *Batch) bool {
	s := d.s
	if f.noDense { // what makes prefixes has not changed
		s.tokens, s.handles = s.tokens[:f.tokens], s.handles[:f.handles]
		return true
	}
	e := s.event()
	*e = kv.Event{
		Kind: kv.Stored, Tier: f.tier, Attention: f.attention, Group: f.group,
		BlockSize: f.blockSize, Reused: f.reused,
		Parent: f.parent, Root: !f.hasParent || f.parent == 0, // llm-d's simulator writes 0 for no parent
		Key: kv.Key{Model: d.Model, LoRA: f.lora, Salt: f.salt},
	}
	if e.Attention == kv.Sliding {
		e.Window = f.window
	}
	if int(f.group) < maxGroups {
		d.groups[f.group], d.known[f.group] = e.Attention, true
	}
	if f.lora == "" && f.loraID > 0 { // of this process only, and no request can name it
		e.Key.LoRA = d.names.numbered(f.loraID)
	}
	e.Handles = s.handles[f.handles:]
	e.Tokens = s.tokens[f.tokens:]
	if e.Attention == kv.Dense && len(e.Handles) > 0 {
		fits := len(e.Tokens) == len(e.Handles)*int(e.BlockSize) && (f.nilExtras == 0 || f.nilExtras == len(e.Handles))
		if fits && (f.extraAt > 0 || f.mmAt > 0 || f.strTokens > 0) {
			fits = d.contents(payload, f, e)
		}
		switch {
		case len(e.Tokens) == 0:
			d.Stats.Opaque++
		case !fits:
			d.Stats.Misaligned++
			e.Tokens, e.Extras = nil, nil
		}
		if len(e.Tokens) == 0 && e.Tier == kv.GPU {
			b.Missed++
		}
	}
	b.Blocks += len(e.Handles)
	return true
}

// event appends an event, with whatever it was before.
func (s *scratch) event() *kv.Event {
	if n := len(s.events); n < cap(s.events) {
		s.events = s.events[:n+1]
	} else {
		s.events = append(s.events, kv.Event{})
	}
	return &s.events[len(s.events)-1]
}

// removed appends a removal, or extends the one before: vLLM sends an event for
// each evicted block, many in a row.
func (d *Decoder) removed(f *fields, b *Batch) bool {
	s := d.s
	tier, attention := f.tier, d.attention(f.group)
	handles := s.handles[f.handles:]
	var copies []int32
	if f.hasCopies && len(s.copies)-f.copies == len(handles) {
		copies = s.copies[f.copies:]
	}
	b.Blocks += len(handles)
	if n := len(s.events); n > 0 && copies == nil {
		p := &s.events[n-1]
		if p.Kind == kv.Removed && p.Tier == tier && p.Group == f.group && p.Attention == attention && p.Copies == nil {
			p.Handles = s.handles[f.handles-len(p.Handles):]
			return true
		}
	}
	*s.event() = kv.Event{Kind: kv.Removed, Tier: tier, Attention: attention, Group: f.group, Handles: handles, Copies: copies}
	return true
}

// moved appends a store without content, since only the engine's name is told,
// and then a removal.
func (d *Decoder) moved(f *fields, b *Batch) bool {
	s, from, to := d.s, f.tier, f.to
	if !f.hasMedium || !f.hasTo || f.hasCopies {
		return false
	}
	handles := s.handles[f.handles:]
	if from == to || len(handles) == 0 {
		return true
	}
	attention := d.attention(f.group)
	*s.event() = kv.Event{Kind: kv.Stored, Tier: to, Attention: attention, Group: f.group, Root: true, Handles: handles}
	*s.event() = kv.Event{Kind: kv.Removed, Tier: from, Attention: attention, Group: f.group, Handles: handles}
	if attention == kv.Dense {
		d.Stats.Opaque++
		if to == kv.GPU {
			b.Missed++
		}
	}
	b.Blocks += 2 * len(handles)
	return true
}

// attention returns the kind of a group as its stores said it.
func (d *Decoder) attention(group uint16) kv.Attention {
	if int(group) < maxGroups && d.known[group] {
		return d.groups[group]
	}
	return kv.Dense
}

func (d *Decoder) cleared(f *fields) bool {
	*d.s.event() = kv.Event{Kind: kv.Cleared, Tier: f.tier, AllTiers: d.ClearAll && !f.hasMedium}
	return true
}
