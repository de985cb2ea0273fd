"""Makes a model directory that vLLM serves with --load-format dummy: Qwen3's
tokenizer files (argument 1) and a config of a very small Qwen3 (argument 2 is the
directory). The weights are random, from a fixed seed: replicas answer alike. With a
third argument, "larger", prefill takes long enough that a cache hit shows in the TTFT."""

import json
import pathlib
import shutil
import sys

source, out = map(pathlib.Path, sys.argv[1:3])
out.mkdir(parents=True, exist_ok=True)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copyfile(source / name, out / name)
larger = sys.argv[3:] == ["larger"]
layers, hidden, heads, kv_heads, head = (8, 512, 8, 2, 64) if larger else (2, 64, 2, 1, 32)
tokenizer = json.loads((out / "tokenizer.json").read_text(encoding="utf-8"))
added = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
size = max(max(tokenizer["model"]["vocab"].values()), *added.values()) + 1
bos, eos = added["<|endoftext|>"], added["<|im_end|>"]
config = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": -(-size // 64) * 64,
    "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": 2 * hidden,
    "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head,
    "max_position_embeddings": 4096, "rope_theta": 1000000, "rms_norm_eps": 1e-6, "hidden_act": "silu", "initializer_range": 0.02,
    "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
    "sliding_window": None, "use_sliding_window": False, "max_window_layers": layers, "bos_token_id": bos, "eos_token_id": eos,
}
(out / "generation_config.json").write_text(json.dumps({"bos_token_id": bos, "eos_token_id": [eos], "do_sample": False}))
(out / "config.json").write_text(json.dumps(config, indent=1))
