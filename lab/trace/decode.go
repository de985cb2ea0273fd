package trace

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
)

// unmarshal decodes a line and names the field where that fails.
func (r *Reader) unmarshal(line []byte, v any) error {
	err := json.Unmarshal(line, v)
	if err == nil {
		return nil
	}
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		return r.lineError(te.Field, "is a %s, want a %s", te.Value, te.Type)
	}
	return r.lineError("", "not JSON: %v", err)
}

// tokens checks a length: present, an integer, between low and the limit.
func (r *Reader) tokens(field string, v *float64, low int) (int, error) {
	if v == nil {
		return 0, r.lineError(field, "is missing: expected a number of tokens")
	}
	if !(*v >= float64(low) && *v <= maxTokens) || *v != math.Trunc(*v) {
		return 0, r.lineError(field, "is %v, want a whole number of tokens between %d and %d", *v, low, maxTokens)
	}
	return int(*v), nil
}

func (r *Reader) seconds(field string, v *float64, scale float64) (float64, error) {
	if v == nil {
		return 0, r.lineError(field, "is missing: expected a time")
	}
	if !(*v >= 0 && *v*scale <= maxTime) {
		return 0, r.lineError(field, "is %v, want a time between 0 and %v", *v, maxTime/scale)
	}
	return *v * scale, nil
}

// full cuts ids to the full blocks of a prompt. A partial tail may be listed.
func (r *Reader) full(field string, ids []uint64, input, size int) ([]uint64, error) {
	if most := (input + size - 1) / size; len(ids) > most {
		return nil, r.lineError(field, "has %d ids, but %d tokens have at most %d blocks of %d", len(ids), input, most, size)
	}
	return ids[:min(len(ids), input/size)], nil
}

func (r *Reader) mooncake(line []byte) (Request, error) {
	var m struct {
		Timestamp *float64 `json:"timestamp"`
		Input     *float64 `json:"input_length"`
		Output    *float64 `json:"output_length"`
		IDs       []uint64 `json:"hash_ids"`
		Session   any      `json:"session_id"`
	}
	if err := r.unmarshal(line, &m); err != nil {
		return Request{}, err
	}
	q := Request{ID: int64(r.line - 1), BlockSize: BlockSize}
	var err error
	if q.At, err = r.seconds("timestamp", m.Timestamp, 1e-3); err != nil {
		return q, err
	}
	q.At = *m.Timestamp / 1000
	if q.Input, err = r.tokens("input_length", m.Input, 1); err != nil {
		return q, err
	}
	if q.Output, err = r.tokens("output_length", m.Output, 0); err != nil {
		return q, err
	}
	q.Output = max(q.Output, 1)
	q.Session = text(m.Session)
	q.Blocks, err = r.full("hash_ids", m.IDs, q.Input, BlockSize)
	return q, err
}

func (r *Reader) cell(line []byte) (Request, error) {
	var m struct {
		ID      int64    `json:"id"`
		T       *float64 `json:"t"`
		Input   *float64 `json:"input"`
		Output  *float64 `json:"output"`
		Session any      `json:"session"`
		Blocks  []uint64 `json:"blocks"`
	}
	if err := r.unmarshal(line, &m); err != nil {
		return Request{}, err
	}
	q := Request{ID: m.ID, Session: text(m.Session), BlockSize: BlockSize}
	var err error
	if q.At, err = r.seconds("t", m.T, 1); err != nil {
		return q, err
	}
	if q.Input, err = r.tokens("input", m.Input, 1); err != nil {
		return q, err
	}
	if q.Output, err = r.tokens("output", m.Output, 0); err != nil {
		return q, err
	}
	q.Output = max(q.Output, 1)
	q.Blocks, err = r.full("blocks", m.Blocks, q.Input, BlockSize)
	return q, err
}

func (r *Reader) turns(line []byte) (Session, error) {
	var m struct {
		Session   any  `json:"session"`
		BlockSize *int `json:"block_size"`
		Turns     []struct {
			Think  *float64 `json:"think"`
			Input  *float64 `json:"input"`
			Output *float64 `json:"output"`
			Blocks []uint64 `json:"blocks"`
		} `json:"turns"`
	}
	if err := r.unmarshal(line, &m); err != nil {
		return Session{}, err
	}
	size := BlockSize
	if m.BlockSize != nil {
		if size = *m.BlockSize; size < 1 || size > maxTokens {
			return Session{}, r.lineError("block_size", "is %d, want tokens between 1 and %d", size, maxTokens)
		}
	}
	s := Session{ID: text(m.Session), Turns: make([]Turn, len(m.Turns)), BlockSize: size}
	if len(m.Turns) == 0 {
		return s, r.lineError("turns", "is empty: a session needs at least one turn")
	}
	for i, t := range m.Turns {
		at := "turns." + strconv.Itoa(i) + "."
		d := &s.Turns[i]
		var err error
		if t.Think != nil {
			if d.Think, err = r.seconds(at+"think", t.Think, 1); err != nil {
				return s, err
			}
		}
		if d.Input, err = r.tokens(at+"input", t.Input, 1); err != nil {
			return s, err
		}
		if d.Output, err = r.tokens(at+"output", t.Output, 0); err != nil {
			return s, err
		}
		d.Output = max(d.Output, 1)
		if d.Blocks, err = r.full(at+"blocks", t.Blocks, d.Input, size); err != nil {
			return s, err
		}
	}
	return s, nil
}

// text returns a session key, which files write as text or as a number.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}
