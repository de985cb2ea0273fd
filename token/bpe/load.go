package bpe

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"weak"
)

// maxFile bounds a tokenizer file: the largest seen is 33 MB.
const maxFile = 256 << 20

// Load reads the tokenizer of a model directory: tokenizer.json with
// tokenizer_config.json, special_tokens_map.json and generation_config.json
// where they are, or tekken.json if there is no tokenizer.json. Which of the two
// an engine takes when both are there is the caller's knowledge: see LoadTekken.
//
// Directories with equal files share one Tokenizer, as long as somebody holds
// it. Errors are a *BadFile, an *Unsupported or one of package fs.
func Load(dir string) (*Tokenizer, error) {
	data, err := readFile(dir, "tokenizer.json")
	if errors.Is(err, fs.ErrNotExist) {
		if t, tekkenErr := LoadTekken(dir); !errors.Is(tekkenErr, fs.ErrNotExist) {
			return t, tekkenErr
		}
		return nil, fmt.Errorf("no tokenizer.json and no tekken.json in %s: %w", dir, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	files := [][]byte{data}
	for _, name := range []string{configFile, specialFile, generationFile} {
		b, err := readFile(dir, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		files = append(files, b)
	}
	return shared(files, func() (*Tokenizer, error) {
		return New(data, files[1], files[2], files[3])
	})
}

// LoadTekken reads the tekken.json of a directory.
func LoadTekken(dir string) (*Tokenizer, error) {
	data, err := readFile(dir, tekkenFile)
	if err != nil {
		return nil, err
	}
	return shared([][]byte{data}, func() (*Tokenizer, error) { return NewTekken(data) })
}

func readFile(dir, name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxFile {
		return nil, &BadFile{name, "(size)", fmt.Errorf("%d bytes; want at most %d", st.Size(), maxFile)}
	}
	b := bytes.NewBuffer(make([]byte, 0, st.Size()+bytes.MinRead))
	if _, err := b.ReadFrom(io.LimitReader(f, maxFile)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// loaded holds the tokenizers that are in use, by the hash of their files.
var loaded struct {
	sync.Mutex
	by map[[sha256.Size]byte]weak.Pointer[Tokenizer]
}

func shared(files [][]byte, make func() (*Tokenizer, error)) (*Tokenizer, error) {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d\n", len(f))
		h.Write(f)
	}
	key := [sha256.Size]byte(h.Sum(nil))
	find := func() *Tokenizer {
		loaded.Lock()
		defer loaded.Unlock()
		return loaded.by[key].Value()
	}
	if t := find(); t != nil {
		return t, nil
	}
	t, err := make() // outside the lock: another model need not wait
	if err != nil {
		return nil, err
	}
	loaded.Lock()
	defer loaded.Unlock()
	if other := loaded.by[key].Value(); other != nil {
		return other, nil
	}
	if loaded.by == nil {
		loaded.by = map[[sha256.Size]byte]weak.Pointer[Tokenizer]{}
	}
	p := weak.Make(t)
	loaded.by[key] = p
	runtime.AddCleanup(t, func(key [sha256.Size]byte) {
		loaded.Lock()
		defer loaded.Unlock()
		if loaded.by[key] == p {
			delete(loaded.by, key)
		}
	}, key)
	return t, nil
}

// New makes a tokenizer of the contents of tokenizer.json and, where they are
// not empty, tokenizer_config.json, special_tokens_map.json and
// generation_config.json.
func New(tokenizer, config, special, generation []byte) (*Tokenizer, error) {
	initClasses()
	s, err := readSpec(tokenizer)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{names: map[string]string{}}
	if err := t.readConfig(s, config, special, generation); err != nil {
		return nil, err
	}
	if t.norm, err = newNormalizer(s.file, s.normalizer); err != nil {
		return nil, err
	}
	if t.pre, err = newPretokenizer(s.file, s.pretokenizer); err != nil {
		return nil, err
	}
	if t.post, err = newPost(s.file, s.postprocessor); err != nil {
		return nil, err
	}
	if err := t.addTokens(s); err != nil {
		return nil, err
	}
	var spaceAs rune
	if r, ok := t.norm.onlySpaces(); ok && !s.byteLevel && t.normalized == nil && t.pre.splitsOnSpaceOnly() {
		// No space is left when the pre-tokenizer looks for one, so it does
		// nothing. The text need not be copied: the model takes a space for
		// its substitute.
		spaceAs = r
		t.norm, t.pre = normalizer{}, &pretokenizer{}
	}
	if t.model, err = newModel(s, func(i int) uint32 { return uint32(i) }, spaceAs); err != nil {
		return nil, err
	}
	t.cache = newCache()
	t.decoder = newDecoder(s)
	t.cuts = newCuts(t)
	return t, nil
}

func (p *pretokenizer) splitsOnSpaceOnly() bool {
	if p.space || p.meta != nil || len(p.stages) > 1 {
		return false
	}
	return len(p.stages) == 0 || p.stages[0].kind == splitText && string(p.stages[0].text) == " "
}

// addTokens sets up the added tokens: ids, and the two sets to match.
func (t *Tokenizer) addTokens(s *spec) error {
	t.addedByID, t.addedByKey = map[uint32]int{}, map[string]int{}
	t.size = len(s.vocab.spans)
	var raw, normalized []AddedToken
	for _, a := range s.added {
		if a.Content == "" {
			continue
		}
		if a.ID > maxID {
			return &BadFile{s.file, "added_tokens", fmt.Errorf("%q has id %d; want at most %d", a.Content, a.ID, maxID)}
		}
		if id := s.idOf(a.Content); id != noID {
			a.ID = id // the vocabulary decides, as in the reference
		}
		if i, ok := t.addedByKey[a.Content]; ok {
			t.added[i] = a
		} else {
			t.addedByKey[a.Content] = len(t.added)
			t.added = append(t.added, a)
		}
		t.size = max(t.size, int(a.ID)+1)
	}
	for i, a := range t.added {
		t.addedByID[a.ID] = i
		if a.Normalized {
			normalized = append(normalized, a)
		} else {
			raw = append(raw, a)
		}
	}
	t.raw = newAddedSet(raw, func(s string) string { return s })
	t.normalized = newAddedSet(normalized, t.norm.string)
	return nil
}

// idOf finds a token of the vocabulary by its name in the file.
func (s *spec) idOf(name string) uint32 {
	if id, ok := s.vocab.odd[name]; ok {
		return id
	}
	b, ok := []byte(name), true
	if s.byteLevel {
		if b, ok = unmap(nil, b); !ok {
			return noID
		}
	}
	return s.vocab.find(b)
}
