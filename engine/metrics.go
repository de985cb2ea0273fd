package engine

import (
	"context"
	"strconv"
	"strings"
	"time"

	"kvasir/kv"
)

// metrics is what we take from GET /metrics (Prometheus text format 0.0.4).
type metrics struct {
	at           time.Time
	vllm, sglang bool
	started      float64
	blockSize    int
	blocks       int
	ranks        []Rank
}

func (c *client) metrics(ctx context.Context) (*metrics, error) {
	body, err := c.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	m := parseMetrics(string(body), time.Now())
	return &m, nil
}

// parseMetrics picks what it knows and ignores everything else, malformed lines
// included. at is when it was read.
func parseMetrics(text string, at time.Time) metrics {
	m := metrics{at: at}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "vllm:") || strings.HasPrefix(line, "sglang:") || strings.HasPrefix(line, "process_start_time_seconds") {
			m.line(strings.TrimSpace(line))
		}
	}
	return m
}

func (m *metrics) line(line string) {
	name, rest, labelled := line, "", false
	if i := strings.IndexAny(line, "{ \t"); i >= 0 {
		name, rest, labelled = line[:i], line[i:], line[i] == '{'
	}
	if strings.HasPrefix(name, "vllm:") {
		m.vllm = true
	} else if strings.HasPrefix(name, "sglang:") {
		m.sglang = true
	}
	var set func(r *Rank, v float64)
	switch name {
	case "process_start_time_seconds", "vllm:cache_config_info", "vllm:engine_sleep_state", "sglang:max_total_num_tokens":
	case "vllm:num_requests_running", "sglang:num_running_reqs":
		set = func(r *Rank, v float64) { r.Running += int(v) }
	case "vllm:num_requests_waiting", "sglang:num_queue_reqs":
		set = func(r *Rank, v float64) { r.Waiting += int(v) }
	case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage":
		set = func(r *Rank, v float64) { r.KVUsage = max(r.KVUsage, v) }
	case "vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total":
		set = func(r *Rank, v float64) { r.Queries += v }
	case "vllm:prefix_cache_hits_total", "sglang:cached_tokens_total":
		set = func(r *Rank, v float64) { r.Hits += v }
	default:
		return
	}
	var l labels
	if labelled {
		var ok bool
		if rest, ok = l.parse(rest[1:]); !ok {
			return
		}
	}
	fields := strings.Fields(rest) // the value, and perhaps a time stamp
	if len(fields) == 0 {
		return
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || v < 0 || v != v || v > 1e18 {
		return
	}
	switch name {
	case "process_start_time_seconds":
		m.started = v
		return
	case "vllm:cache_config_info":
		m.blockSize, _ = strconv.Atoi(l.blockSize) // "None" is 0
		m.blocks, _ = strconv.Atoi(l.blocks)
	}
	if l.tp != "" && l.tp != "0" { // SGLang repeats everything for each tensor-parallel rank
		return
	}
	r := m.rank(l.rank)
	switch {
	case r == nil:
	case name == "vllm:engine_sleep_state":
		r.Asleep = r.Asleep || v > 0 && l.sleep != "" && l.sleep != "awake"
	case set != nil:
		r.At = m.at
		set(r, v)
	}
}

// rank returns the rank that a label names; without a label, rank 0.
func (m *metrics) rank(label string) *Rank {
	n := 0
	if label != "" {
		var err error
		if n, err = strconv.Atoi(label); err != nil || n < 0 || n >= kv.MaxTargets {
			return nil
		}
	}
	for len(m.ranks) <= n {
		m.ranks = append(m.ranks, Rank{})
	}
	return &m.ranks[n]
}

// labels are those of a sample that we care about.
type labels struct {
	rank      string // engine (vLLM) or dp_rank (SGLang)
	tp        string
	blockSize string
	blocks    string
	sleep     string
}

// parse reads name="value",… up to the closing brace and returns what follows.
func (l *labels) parse(s string) (rest string, ok bool) {
	for {
		s = strings.TrimLeft(s, ", \t")
		if strings.HasPrefix(s, "}") {
			return s[1:], true
		}
		name, after, found := strings.Cut(s, "=")
		if !found || !strings.HasPrefix(after, `"`) {
			return "", false
		}
		after = after[1:]
		end := 0
		for end < len(after) && after[end] != '"' {
			if after[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(after) {
			return "", false
		}
		value := after[:end] // none of the values that we want has an escape
		s = after[end+1:]
		switch strings.TrimSpace(name) {
		case "engine", "dp_rank":
			l.rank = value
		case "tp_rank":
			l.tp = value
		case "block_size":
			l.blockSize = value
		case "num_gpu_blocks":
			l.blocks = value
		case "sleep_state":
			l.sleep = value
		}
	}
}
