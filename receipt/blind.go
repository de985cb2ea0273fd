package receipt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"

	"kvasir/kv"
)

// A Blind makes one-way names under two keys that are drawn at random and kept
// nowhere. Equal things have equal names within a run, and nobody can test a guess
// afterwards, not even who has the seed of the index's hashes. Not for use by
// several goroutines.
type Blind struct {
	names  hash.Hash
	blocks cipher.Block
	sum    [sha256.Size]byte
	buf    [aes.BlockSize]byte
}

// NewBlind draws keys.
func NewBlind() *Blind {
	var key [48]byte
	rand.Read(key[:]) // never fails
	return newBlind(&key)
}

func newBlind(key *[48]byte) *Blind {
	c, err := aes.NewCipher(key[32:])
	if err != nil {
		panic(err) // 16 bytes are a key
	}
	return &Blind{names: hmac.New(sha256.New, key[:32]), blocks: c}
}

// name returns 64 bits of the HMAC of s in hex, "" for "". kind keeps equal words of
// different kinds apart.
func (b *Blind) name(kind byte, s string) string {
	if s == "" {
		return ""
	}
	b.names.Reset()
	b.names.Write([]byte{kind})
	b.names.Write([]byte(s))
	return hex.EncodeToString(b.names.Sum(b.sum[:0])[:8])
}

// block returns another hash for h: 64 bits of its AES encryption.
func (b *Blind) block(h kv.Hash) uint64 {
	x := b.buf[:]
	clear(x)
	binary.LittleEndian.PutUint64(x, uint64(h))
	b.blocks.Encrypt(x, x)
	return binary.BigEndian.Uint64(x)
}

// Blocks are the names of a prompt's blocks. A name covers everything before its
// block, so equal names mean equal prompts up to there. In JSON they are one text:
// base64 of 8 bytes each, big-endian, half as long as a list of numbers.
type Blocks []uint64

// MarshalJSON writes the text.
func (b Blocks) MarshalJSON() ([]byte, error) {
	raw := make([]byte, 0, 8*len(b))
	for _, x := range b {
		raw = binary.BigEndian.AppendUint64(raw, x)
	}
	out := make([]byte, 0, 2+base64.RawStdEncoding.EncodedLen(len(raw)))
	return append(base64.RawStdEncoding.AppendEncode(append(out, '"'), raw), '"'), nil
}

// UnmarshalJSON reads it.
func (b *Blocks) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("is %.20s, want a text in base64", text)
	}
	raw, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil || len(raw)%8 != 0 {
		return fmt.Errorf("is a text of %d characters, want base64 without padding of 8 bytes for each block", len(s))
	}
	*b = make(Blocks, 0, len(raw)/8)
	for ; len(raw) > 0; raw = raw[8:] {
		*b = append(*b, binary.BigEndian.Uint64(raw))
	}
	return nil
}
