package mockserver

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kvasir/kv"
)

// A recording is one ZeroMQ message of a real vLLM 0.32.
type recording struct {
	Payload string            `json:"payload_hex"`
	Decoded []json.RawMessage `json:"decoded"`
}

type recordedEvent struct {
	Type    string   `json:"type"`
	Hashes  []uint64 `json:"block_hashes"`
	Parent  *uint64  `json:"parent_block_hash"`
	Tokens  []uint32 `json:"token_ids"`
	Size    int      `json:"block_size"`
	Extra   [][]any  `json:"extra_keys"`
	Session string   `json:"session_id"`
}

// TestEventsAreVLLMsBytes writes what each recorded batch says and compares all
// bytes with what vLLM sent.
func TestEventsAreVLLMsBytes(t *testing.T) {
	files, _ := filepath.Glob("testdata/main_*.jsonl")
	batches := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
			var rec recording
			if err := json.Unmarshal(line, &rec); err != nil {
				t.Fatal(err)
			}
			var ts float64
			var events []recordedEvent
			if err := json.Unmarshal(rec.Decoded[0], &ts); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(rec.Decoded[1], &events); err != nil {
				t.Fatal(err)
			}
			b := batch{dialect: Maps}
			for _, e := range events {
				writeRecorded(t, &b, e)
			}
			if got := hex.EncodeToString(b.payload(nil, ts, 0)); got != rec.Payload {
				t.Errorf("%s line %d:\n got %s\nwant %s", file, i+1, got, rec.Payload)
			}
			batches++
		}
	}
	if batches < 10 {
		t.Fatalf("compared %d batches, want at least 10", batches)
	}
}

func writeRecorded(t *testing.T, b *batch, e recordedEvent) {
	var hs []kv.Hash
	for _, h := range e.Hashes {
		hs = append(hs, kv.Hash(h))
	}
	switch e.Type {
	case "BlockStored":
		s := stored{hashes: hs, root: e.Parent == nil, tokens: e.Tokens, blockSize: e.Size, session: e.Session}
		if e.Parent != nil {
			s.parent = kv.Hash(*e.Parent)
		}
		if len(e.Extra) > 0 && len(e.Extra[0]) > 0 {
			s.salt = e.Extra[0][0].(string)
		}
		b.stored(&s)
	case "BlockRemoved":
		b.removed(hs[0])
	case "AllBlocksCleared":
		b.cleared()
	default:
		t.Fatalf("recorded event of type %q", e.Type)
	}
}

// TestArrays compares with golden bytes that msgspec wrote for vLLM's structs.
func TestArrays(t *testing.T) {
	b := batch{dialect: Arrays}
	b.stored(&stored{hashes: []kv.Hash{0xdab7a9c0d1e2f304}, parent: 7, tokens: []uint32{1, 2, 3, 4}, blockSize: 4})
	want := "93cb41d954fc40200000919cab426c6f636b53746f72656491cfdab7a9c0d1e2f30407940102030404c0a3475055c091c000ae66756c6c5f617474656e74696f6ec000"
	if got := hex.EncodeToString(b.payload(nil, 1700000000.5, 0)); got != want {
		t.Errorf("stored:\n got %s\nwant %s", got, want)
	}
	b.reset()
	b.cleared()
	want = "93cb41d954fc402000009191b0416c6c426c6f636b73436c656172656400"
	if got := hex.EncodeToString(b.payload(nil, 1700000000.5, 0)); got != want {
		t.Errorf("cleared:\n got %s\nwant %s", got, want)
	}
}

// TestBlockHashes recomputes vLLM's own hashes from recorded vectors.
func TestBlockHashes(t *testing.T) {
	raw, err := os.ReadFile("testdata/hash_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Algo   string      `json:"algo"`
			Seed   string      `json:"seed"`
			None   string      `json:"none_hash_hex"`
			Parent string      `json:"parent_hex"`
			Tokens []uint32    `json:"token_ids"`
			Extra  []any       `json:"extra_keys_in_event"`
			Wire   json.Number `json:"wire_int"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, c := range file.Cases {
		if c.Algo != "sha256_cbor" || c.Parent != c.None {
			continue
		}
		seed := c.Seed
		if seed == "vllm-none-hash" {
			seed = ""
		}
		salt := ""
		if len(c.Extra) > 0 {
			salt = c.Extra[0].(string)
		}
		got := newHasher(seed).blocks(nil, c.Tokens, len(c.Tokens), salt)
		if want, _ := strconv.ParseUint(c.Wire.String(), 10, 64); uint64(got[0]) != want {
			t.Errorf("seed %q salt %q: %d, want %d", c.Seed, salt, got[0], want)
		}
		checked++
	}
	if checked < 4 {
		t.Fatalf("checked %d vectors, want at least 4", checked)
	}
	// A chain: tokens 1..16, then 17..32, as vLLM's kv_cache_utils hashes them.
	var ids []uint32
	for i := range uint32(32) {
		ids = append(ids, i+1)
	}
	got := newHasher("0").blocks(nil, ids, 16, "")
	if got[0] != 3236607068019569386 || got[1] != 2758186210834249151 {
		t.Errorf("chain %d, want [3236607068019569386 2758186210834249151]", got)
	}
}

func TestTokenizer(t *testing.T) {
	for _, text := range []string{
		"", "baba", " baba zozo", "The quick brown fox", "naïve café 😀", "<|im_start|>user\nhi<|im_end|>", "\xff\xfe", strings.Repeat("a", 1000), "bab", " ba ba",
	} {
		ids := encode(nil, text)
		if got := string(decode(nil, ids)); got != text {
			t.Errorf("%q comes back as %q", text, got)
		}
	}
	if got := encode(nil, " "+Word(0)+" "+Word(4095)); len(got) != 2 || got[0] != firstSpaced || got[1] != firstSpecial-1 {
		t.Errorf("two spaced words are %d", got)
	}
	for n := range numWords {
		if ids := encode(nil, Word(n)); len(ids) != 1 || int(ids[0]) != firstWord+n {
			t.Fatalf("word %d %q is %d", n, Word(n), ids)
		}
	}
	for i := range 10000 {
		if id := outputToken(uint64(i), i); id < firstSpaced || id >= firstSpecial {
			t.Fatalf("output token %d is %d", i, id)
		}
	}
}
