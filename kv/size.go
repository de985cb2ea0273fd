package kv

// MinChunk is the least number of tokens of an indexed block: smaller pages are
// collected into chunks of at least that many.
const MinChunk = 16

// ChainSize returns the block size, in tokens, at which a prompt has to be hashed
// to match targets whose events have blocks of size eventBlockSize: the size
// itself from MinChunk on; below, the smallest multiple that is at least MinChunk.
func ChainSize(eventBlockSize int) int {
	if eventBlockSize <= 0 || eventBlockSize >= MinChunk {
		return eventBlockSize
	}
	return (MinChunk + eventBlockSize - 1) / eventBlockSize * eventBlockSize
}

// EstimateTokens guesses how many tokens a prompt of n bytes has, where nobody
// can tell: four bytes a token, as English text has with most vocabularies. It
// only weighs such prompts against each other and against known ones.
func EstimateTokens(bytes int) int { return (max(bytes, 0) + 3) / 4 }
