package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"kvasir/kv"
)

// A Source is where one rank publishes its events.
type Source struct {
	Rank   int
	Events string // endpoint as we dial it
	Replay string // likewise, "" for none
	Topic  string
}

// errNoEvents says that the engine publishes none.
var errNoEvents = errors.New("the engine publishes no KV events (vLLM: --kv-events-config with enable_kv_cache_events, SGLang: --kv-events-config with publisher zmq)")

// sources asks where the events are: vLLM's /kv_event_sources, else SGLang's
// /server_info. host is the replica's, for endpoints that name none.
func (c *client) sources(ctx context.Context, host string, i *Info) ([]Source, error) {
	body, err := c.get(ctx, "/kv_event_sources")
	if err == nil {
		return parseSources(body, host)
	}
	if !errors.Is(err, errAbsent) {
		return nil, err
	}
	for _, path := range []string{"/server_info", "/get_server_info"} {
		body, err = c.get(ctx, path)
		if err == nil {
			return parseServerInfo(body, host, i)
		}
	}
	if errors.Is(err, errAbsent) {
		return nil, errors.New("the engine doesn't tell where its KV events are (vLLM before /kv_event_sources): configure the endpoint")
	}
	return nil, err
}

// kvSource is an element of vLLM's answer.
type kvSource struct {
	Rank     *int    `json:"data_parallel_rank"`
	Enabled  *bool   `json:"enable_kv_cache_events"`
	Kind     *string `json:"publisher"`
	Endpoint *string `json:"endpoint"`
	Replay   *string `json:"replay_endpoint"`
	Topic    string  `json:"topic"`
}

// parseSources reads the three shapes that /kv_event_sources has had: an
// object keyed by rank (0.32), {"sources": […]}, and the bare list.
func parseSources(body []byte, host string) ([]Source, error) {
	var list []kvSource
	trimmed := bytes.TrimSpace(body)
	if bytes.HasPrefix(trimmed, []byte("[")) {
		if err := json.Unmarshal(trimmed, &list); err != nil {
			return nil, fmt.Errorf("/kv_event_sources: %w", err)
		}
	} else {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(trimmed, &object); err != nil {
			return nil, fmt.Errorf("/kv_event_sources: %w", err)
		}
		if raw, ok := object["sources"]; ok {
			if err := json.Unmarshal(raw, &list); err != nil {
				return nil, fmt.Errorf("/kv_event_sources: sources: %w", err)
			}
		} else {
			for key, raw := range object {
				rank, err := strconv.Atoi(key)
				if err != nil {
					continue // not a rank: something that came later
				}
				var s kvSource
				if err := json.Unmarshal(raw, &s); err != nil {
					return nil, fmt.Errorf("/kv_event_sources: rank %s: %w", key, err)
				}
				if s.Rank == nil {
					s.Rank = &rank
				}
				list = append(list, s)
			}
		}
	}
	var out []Source
	for n, s := range list {
		off := s.Enabled != nil && !*s.Enabled || s.Kind != nil && *s.Kind != "zmq"
		if off || s.Endpoint == nil || *s.Endpoint == "" {
			continue
		}
		src := Source{Rank: n, Topic: s.Topic}
		if s.Rank != nil {
			src.Rank = *s.Rank
		}
		if src.Rank < 0 || src.Rank >= kv.MaxTargets {
			return nil, fmt.Errorf("/kv_event_sources: rank %d: want 0 to %d", src.Rank, kv.MaxTargets-1)
		}
		var err error
		if src.Events, err = reachable(*s.Endpoint, host); err != nil {
			return nil, fmt.Errorf("/kv_event_sources: %w", err)
		}
		if s.Replay != nil && *s.Replay != "" {
			if src.Replay, err = reachable(*s.Replay, host); err != nil {
				return nil, fmt.Errorf("/kv_event_sources: %w", err)
			}
		}
		out = append(out, src)
	}
	if len(out) == 0 {
		return nil, errNoEvents
	}
	slices.SortFunc(out, func(a, b Source) int { return cmp.Compare(a.Rank, b.Rank) })
	for n := 1; n < len(out); n++ {
		if out[n].Rank == out[n-1].Rank {
			return nil, fmt.Errorf("/kv_event_sources: rank %d is there twice", out[n].Rank)
		}
	}
	return out, nil
}

// parseServerInfo reads what SGLang tells about its events and its sizes.
func parseServerInfo(body []byte, host string, i *Info) ([]Source, error) {
	var v struct {
		Version  string `json:"version"`
		PageSize int    `json:"page_size"`
		Tokens   int    `json:"max_total_num_tokens"`
		Batch    int    `json:"chunked_prefill_size"`
		LowFirst bool   `json:"schedule_low_priority_values_first"`
		Replay   string `json:"kv_events_config"` // JSON in a string, as given on the command line
		KVEvents *struct {
			Publisher string  `json:"publisher"`
			Host      string  `json:"endpoint_host"`
			Port      int     `json:"endpoint_port_base"`
			Topic     string  `json:"topic"`
			BlockSize int     `json:"block_size"`
			Ranks     int     `json:"dp_size"`
			Replay    *string `json:"replay_endpoint"`
		} `json:"kv_events"`
		Internal []struct {
			Tokens int `json:"max_total_num_tokens"`
		} `json:"internal_states"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return nil, fmt.Errorf("/server_info: %w", err)
	}
	if v.Version != "" {
		i.Kind, i.Version = cmp.Or(i.Kind, "sglang"), v.Version
	}
	i.BlockSize = cmp.Or(v.PageSize, i.BlockSize)
	i.MaxBatch, i.LowFirst = max(v.Batch, 0), v.LowFirst
	if v.Tokens == 0 && len(v.Internal) > 0 {
		v.Tokens = v.Internal[0].Tokens
	}
	e := v.KVEvents
	if e != nil {
		i.BlockSize = cmp.Or(e.BlockSize, i.BlockSize)
	}
	if i.BlockSize > 0 && v.Tokens > 0 {
		i.Blocks = v.Tokens / i.BlockSize
	}
	if e == nil || e.Publisher != "zmq" {
		return nil, errNoEvents
	}
	if e.Ranks < 0 || e.Ranks > kv.MaxTargets {
		return nil, fmt.Errorf("/server_info: dp_size %d: want 1 to %d", e.Ranks, kv.MaxTargets)
	}
	replay := ""
	if e.Replay != nil {
		replay = *e.Replay
	} else if v.Replay != "" {
		var c struct {
			Replay string `json:"replay_endpoint"`
		}
		if json.Unmarshal([]byte(v.Replay), &c) == nil {
			replay = c.Replay
		}
	}
	endpoint, err := reachable("tcp://"+net.JoinHostPort(cmp.Or(e.Host, "*"), strconv.Itoa(e.Port)), host)
	if err != nil {
		return nil, fmt.Errorf("/server_info: %w", err)
	}
	if replay != "" {
		if replay, err = reachable(replay, host); err != nil {
			return nil, fmt.Errorf("/server_info: %w", err)
		}
	}
	return ranks(endpoint, replay, max(e.Ranks, 1), e.Topic)
}

// ranks returns the sources of n ranks from the endpoints of rank 0.
func ranks(events, replay string, n int, topic string) ([]Source, error) {
	var out []Source
	for rank := range n {
		s := Source{Rank: rank, Topic: topic}
		var err error
		if s.Events, err = endpointOfRank(events, rank); err != nil {
			return nil, err
		}
		if replay != "" {
			if s.Replay, err = endpointOfRank(replay, rank); err != nil {
				return nil, err
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// splitEndpoint takes tcp://host:port apart; other transports are left whole.
func splitEndpoint(endpoint string) (host string, port int, tcp bool, err error) {
	rest, tcp := strings.CutPrefix(endpoint, "tcp://")
	if !tcp {
		if !strings.HasPrefix(endpoint, "ipc://") {
			return "", 0, false, fmt.Errorf("endpoint %q: want tcp://host:port or ipc://path", endpoint)
		}
		return "", 0, false, nil
	}
	colon := strings.LastIndexByte(rest, ':') // libzmq takes the last one, brackets or not
	if colon < 0 {
		return "", 0, true, fmt.Errorf("endpoint %q: no port; want tcp://host:port", endpoint)
	}
	port, err = strconv.Atoi(rest[colon+1:])
	if err != nil || port < 1 || port > 65535 {
		return "", 0, true, fmt.Errorf("endpoint %q: port %q: want 1 to 65535", endpoint, rest[colon+1:])
	}
	return strings.Trim(rest[:colon], "[]"), port, true, nil
}

// endpointOfRank returns the endpoint of a rank from that of rank 0, as vLLM and
// SGLang count: port + rank.
func endpointOfRank(endpoint string, rank int) (string, error) {
	host, port, tcp, err := splitEndpoint(endpoint)
	switch {
	case err != nil:
		return "", err
	case !tcp && rank == 0:
		return endpoint, nil
	case !tcp:
		return "", fmt.Errorf("endpoint %q: rank %d needs tcp", endpoint, rank)
	case host == "" || host == "*":
		return "", fmt.Errorf("endpoint %q: a host to dial is needed", endpoint)
	case port+rank > 65535:
		return "", fmt.Errorf("endpoint %q: no port for rank %d", endpoint, rank)
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port+rank)), nil
}

// reachable returns the endpoint that we dial for one that an engine has
// configured for itself: a wildcard (also in its IPv6 and mapped spellings) and a
// loopback address seen from another machine become the replica's host.
func reachable(endpoint, host string) (string, error) {
	h, port, tcp, err := splitEndpoint(endpoint)
	if err != nil || !tcp {
		return endpoint, err
	}
	replace := h == "" || h == "*"
	if a, err := netip.ParseAddr(h); err == nil {
		mapped := a.Is4In6()
		a = a.Unmap()
		replace = a.IsUnspecified() || mapped || a.IsLoopback() && !isLoopback(host)
	} else if h == "localhost" {
		replace = !isLoopback(host)
	}
	if replace {
		h = host
	}
	return "tcp://" + net.JoinHostPort(h, strconv.Itoa(port)), nil
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}
