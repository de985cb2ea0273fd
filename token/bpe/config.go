package bpe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

const (
	configFile     = "tokenizer_config.json"
	specialFile    = "special_tokens_map.json"
	generationFile = "generation_config.json"
)

// specialNames are the attributes that hold a token.
var specialNames = []string{
	"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
	"boi_token", "eoi_token", "image_token", "audio_token", "video_token",
}

// readConfig takes from the side files the names of special tokens, the ids
// that end a generation, and added tokens that tokenizer.json lacks.
func (t *Tokenizer) readConfig(s *spec, config, special, generation []byte) error {
	for _, f := range []struct {
		name string
		data []byte
	}{{specialFile, special}, {configFile, config}} { // the latter overrides
		if len(f.data) == 0 {
			continue
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(f.data, &fields); err != nil {
			return &BadFile{f.name, "(top)", err}
		}
		for _, name := range specialNames {
			raw := fields[name]
			if len(raw) == 0 || string(raw) == "null" {
				continue
			}
			var token string
			if err := json.Unmarshal(raw, &token); err != nil {
				var object AddedToken // {"content": "<s>", "lstrip": …}
				if err := json.Unmarshal(raw, &object); err != nil {
					return &BadFile{f.name, name, fmt.Errorf("want a string or an object with content")}
				}
				token = object.Content
			}
			t.names[name] = token
		}
		if raw := fields["added_tokens_decoder"]; len(raw) > 0 && f.name == configFile {
			if err := s.addDecoder(raw); err != nil {
				return err
			}
		}
	}
	if len(generation) > 0 {
		var fields struct {
			EOS json.RawMessage `json:"eos_token_id"`
		}
		if err := json.Unmarshal(generation, &fields); err != nil {
			return &BadFile{generationFile, "(top)", err}
		}
		if len(fields.EOS) > 0 && string(fields.EOS) != "null" {
			var one uint32
			if err := json.Unmarshal(fields.EOS, &one); err == nil {
				t.ends = []uint32{one}
			} else if err := json.Unmarshal(fields.EOS, &t.ends); err != nil {
				return &BadFile{generationFile, "eos_token_id", fmt.Errorf("want an id or a list of ids")}
			}
		}
	}
	return nil
}

// addDecoder appends the tokens of added_tokens_decoder, keyed by id, that
// tokenizer.json does not have.
func (s *spec) addDecoder(raw json.RawMessage) error {
	var more map[string]AddedToken
	if err := json.Unmarshal(raw, &more); err != nil {
		return &BadFile{configFile, "added_tokens_decoder", err}
	}
	var extra []AddedToken
	for key, a := range more {
		id, err := strconv.ParseUint(key, 10, 32)
		if err != nil || id > maxID {
			return &BadFile{configFile, "added_tokens_decoder", fmt.Errorf("key %q; want an id from 0 to %d", key, maxID)}
		}
		if !slices.ContainsFunc(s.added, func(b AddedToken) bool { return b.Content == a.Content }) {
			a.ID = uint32(id)
			extra = append(extra, a)
		}
	}
	slices.SortFunc(extra, func(a, b AddedToken) int { return int(a.ID) - int(b.ID) })
	s.added = append(s.added, extra...)
	return nil
}

// Special returns the token that tokenizer_config.json calls name, such as
// "bos_token"; ok is false if it names none.
func (t *Tokenizer) Special(name string) (token string, ok bool) {
	token, ok = t.names[name]
	return token, ok
}

// SpecialNames returns the names that Special knows, in a fixed order.
func (t *Tokenizer) SpecialNames() []string {
	var names []string
	for _, n := range specialNames {
		if _, ok := t.names[n]; ok {
			names = append(names, n)
		}
	}
	return names
}

// Ends returns the ids that end a generation by generation_config.json. The
// caller must not change them.
func (t *Tokenizer) Ends() []uint32 { return t.ends }
