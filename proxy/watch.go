package proxy

import (
	"bytes"
	"sync"
)

// A watcher reads an answer on the side, while its bytes go to the client.
type watcher struct {
	events eventReader
	seen   int // events with data

	ask bool   // for the id in the first event
	id  string // of the answer in the Responses API

	anything bool // any event counts as content

	content bool // the model has said something
	tokens  int  // that it has said: one for an event with content, unless told
	usage   usage

	failed    bool // the engine reports an error instead of, or in the midst of, an answer
	clientErr bool // which is the client's
	aborted   bool // finish_reason "abort", without any content
	done      bool // the stream's own end mark was seen
}

var watchers = sync.Pool{New: func() any {
	w := new(watcher)
	w.events.data = w.event
	return w
}}

func newWatcher() *watcher { return watchers.Get().(*watcher) }

// keepLine bounds the buffers that an idle watcher keeps, in bytes.
const keepLine = 16 << 10

func (w *watcher) put() {
	kept, line := w.events.kept[:0], w.events.line[:0]
	if cap(kept) > keepLine {
		kept = nil
	}
	if cap(line) > keepLine {
		line = nil
	}
	*w = watcher{events: eventReader{data: w.events.data, kept: kept, line: line}}
	watchers.Put(w)
}

// event takes the data of one event; nil is an event that was too long to keep.
func (w *watcher) event(data []byte) {
	if data != nil && string(data) == "[DONE]" {
		w.done = true
		return
	}
	w.seen++
	if w.ask {
		w.ask, w.id = false, storedID(data)
	}
	if data == nil {
		w.content = true
		w.tokens++
		return
	}
	if w.content && plain(data) {
		w.tokens++
		return
	}
	m := meaning{usage: w.usage}
	m.read(data)
	w.usage = m.usage
	if m.content {
		w.content = true
		w.tokens += max(m.tokens, 1)
	}
	w.failed = w.failed || m.failed
	w.clientErr = w.clientErr || m.failed && m.clientErr
	w.done = w.done || m.last
	w.content = w.content || w.anything && !w.failed
	w.aborted = (w.aborted || m.aborted) && !w.content
}

// plain reports, by its end, whether data is a chunk of an OpenAI stream that has
// something in a choice and nothing behind the choices: no usage, no error. Most
// chunks are, and a look at the end is a tenth of the cost of reading them. Lists
// of token ids, to be counted, end differently.
func plain(data []byte) bool {
	n := len(data)
	return n > 4 && string(data[n-3:]) == "}]}" && data[n-4] != ']' && !bytes.Contains(data, []byte(`"delta":{}`))
}

// whole takes an answer that is one JSON document.
func (w *watcher) whole(data []byte) {
	m := meaning{}
	m.read(data)
	w.usage, w.content = m.usage, m.content
	w.failed, w.clientErr = m.failed, m.clientErr
	w.aborted = m.aborted && !m.content
}

// settle takes the number of tokens that the engine has counted, if that is more.
func (w *watcher) settle() {
	if w.usage.hasOutput && w.usage.output > w.tokens {
		w.tokens = w.usage.output
	}
}

// trouble says why what has come so far, without content, asks for another engine.
func (w *watcher) trouble() Reason {
	switch {
	case w.failed && !w.clientErr:
		return ServerError
	case w.aborted:
		return Aborting
	}
	return None
}
