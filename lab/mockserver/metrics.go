package mockserver

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

type counts struct{ finished atomic.Int64 }

// metrics writes the part of vLLM's metrics that routers read, under vLLM's names.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	st := s.Stats()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	labels := fmt.Sprintf(`engine="0",model_name=%q`, s.cfg.Model)
	write := func(kind, name string, v any) {
		fmt.Fprintf(w, "# TYPE %s %s\n%s{%s} %v\n", name, kind, name, labels, v)
	}
	fmt.Fprintf(w, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %.3f\n", float64(s.started.UnixMilli())/1e3)
	write("gauge", "vllm:num_requests_running", st.Running)
	write("gauge", "vllm:num_requests_waiting", st.Waiting)
	write("gauge", "vllm:kv_cache_usage_perc", st.Usage)
	write("counter", "vllm:prefix_cache_queries_total", st.Queries)
	write("counter", "vllm:prefix_cache_hits_total", st.Hits)
	write("counter", "vllm:num_preemptions_total", st.Preemptions)
	write("counter", "vllm:prompt_tokens_total", st.Prompt)
	write("counter", "vllm:generation_tokens_total", st.Generated)
	fmt.Fprintf(w, "# TYPE vllm:request_success_total counter\nvllm:request_success_total{finished_reason=\"length\",%s} %d\n", labels, s.counts.finished.Load())
	fmt.Fprintf(w, "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"%d\",enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"%d\",prefix_caching_hash_algo=\"sha256_cbor\"} 1.0\n",
		s.cfg.BlockSize, st.Blocks)
}
