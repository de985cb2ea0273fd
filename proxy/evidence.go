package proxy

import (
	"strings"

	"kvasir/token"
)

// How a request stands to its engine's prefix cache, as its body says.
//
// vLLM computes the whole prompt where each of its tokens is to get a logprob: for
// prompt_logprobs, and for echo with logprobs in completions (in chat for echo alone, as
// top_logprobs isn't null there unless the client says so). That is SamplingParams and
// the requests' to_sampling_params of vLLM 0.32 (vllm/sampling_params.py,
// vllm/entrypoints/openai/completion/protocol.py). SGLang does so for echo with logprobs
// (entrypoints/openai/serving_completions.py: logprob_start_len 0, by which
// schedule_batch.py bounds the match). Both write the cache all the same.
//
// Of other fields some keep an engine from its cache too (SGLang's extra_key and
// lora_path, vLLM's prompt_embeds and kv_transfer_params, what comes with the next
// version). So a request shows something of an engine only if all its fields are known
// not to matter: else 16 requests of one client would empty what is known of an engine.
type cacheUse struct {
	promptLogprobs bool // prompt_logprobs, or prompt_logprob_token_ids, not null
	logprobs       bool // not null
	echo           bool
	odd            bool // there is a field that may matter
}

// unread says that the engine will read no cache for the prompt.
func (u *cacheUse) unread(kind token.Endpoint) bool {
	switch kind {
	case token.Completions:
		return u.promptLogprobs || u.echo && u.logprobs
	case token.Chat:
		return u.promptLogprobs || u.echo
	}
	return false
}

// shows says that what is served for the prompt shows what the engine does with it.
func (u *cacheUse) shows() bool { return !u.odd && !u.promptLogprobs && !u.echo }

// field reads the value of a field that nobody else wants to read.
func (u *cacheUse) field(name []byte, c *cursor) {
	v := c.peek()
	c.skip()
	switch string(name) {
	case "prompt_logprobs", "prompt_logprob_token_ids":
		u.promptLogprobs = v != 'n'
	case "logprobs":
		u.logprobs = v != 'n'
	case "echo":
		u.echo = v != 'n' && v != 'f'
	default:
		if v != 'n' && !harmless[string(name)] { // null is as if it weren't there
			u.odd = true
		}
	}
}

// harmless has the fields, beside those that fields reads, that have nothing to do with
// the cache but for the tokens that they make: those of OpenAI's and Anthropic's APIs, and
// what vLLM 0.32 and SGLang add about sampling, output and templates.
var harmless = set(`
	messages prompt input instructions system
	temperature top_p top_k min_p frequency_penalty presence_penalty repetition_penalty length_penalty seed logit_bias
	stop stop_sequences stop_token_ids stop_regex ignore_eos min_tokens bad_words allowed_token_ids
	top_logprobs response_format structured_outputs regex json_schema ebnf
	guided_json guided_regex guided_choice guided_grammar guided_decoding_backend guided_whitespace_pattern
	tools tool_choice parallel_tool_calls reasoning reasoning_effort include_reasoning separate_reasoning stream_reasoning
	thinking thinking_token_budget text verbosity
	skip_special_tokens spaces_between_special_tokens include_stop_str_in_output no_stop_trim
	add_generation_prompt continue_final_message add_special_tokens chat_template chat_template_kwargs documents
	request_id rid service_tier safety_identifier prompt_cache_retention include truncation modalities background
	return_token_ids return_tokens_as_token_ids return_cached_tokens_details stream_interval
`)

func set(words string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		out[w] = true
	}
	return out
}
