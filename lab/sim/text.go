package sim

// bytesPerToken is how long the text of a token is: kv.EstimateTokens the other way
// round, and about what English has.
const bytesPerToken = 4

// filler is what every block's text is but for its beginning: what it says doesn't
// matter, as blocks differ before.
var filler [4096]byte

func init() {
	for i := range filler {
		filler[i] = "etaoin shrdlu cm"[h64(uint64(i))%16]
	}
}

// appendText appends the text of so many tokens: that of the block that the trace
// calls id, or of anything else that has a name. Equal names have equal text; others
// differ in the first 16 bytes, most in the very first. So prompts have as much text in
// common as they have blocks. (trace.Writer does the same with words that tokenize
// well, and takes 20 times as long: a policy reads every prompt of every run.)
func appendText(dst []byte, id uint64, tokens int) []byte {
	n := tokens * bytesPerToken
	h := h64(id)
	for i := range min(n, 16) {
		dst = append(dst, "0123456789abcdef"[h>>(4*i)&15])
	}
	for n -= 16; n > 0; n -= len(filler) {
		dst = append(dst, filler[:min(n, len(filler))]...)
	}
	return dst
}

// appendPrompt appends the text of q's prompt: its blocks, and behind them what the
// trace doesn't name, which is q's own.
func appendPrompt(dst []byte, q *request, size int) []byte {
	blocks := q.blocks()
	for _, id := range blocks {
		dst = appendText(dst, uint64(id), size)
	}
	return appendText(dst, ownText^q.ID, max(q.Prompt-len(blocks)*size, 0))
}

// ownText keeps the names of requests' own text apart from those of blocks.
const ownText = 0x9ae16a3b2f90404f
