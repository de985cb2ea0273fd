"""MB per CPU second of other encoders, on the texts of BenchmarkEncode and BenchmarkEncode200.

    pip install fastokens==0.3.5 tokenizers==0.23.3
    mkdir /tmp/corpus && KVASIR_CORPUS=/tmp/corpus go test -run TestWriteCorpus ./token/bpe
    python3 token/bpe/rivals.py /tmp/corpus qwen3 deepseek_v3      # in the same minute as: go test -run X -bench Encode ./token/bpe

One thread; every slice of 64 KB is encoded once, after 500 KB of other text of the kind.
"""
import os, sys, time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import fastokens, tokenizers

def read(name):
    with open(name, "rb") as f:
        return f.read().decode("utf-8", "ignore")

def measure(tok, warm, text, size):
    for i in range(0, len(warm), size):
        tok.encode(warm[i:i + size], add_special_tokens=False)
    parts = [text[i:i + size] for i in range(0, len(text), size)]
    start = time.process_time()
    for p in parts:
        tok.encode(p, add_special_tokens=False)
    return len(text.encode()) / 1e6 / (time.process_time() - start)

corpus, families = sys.argv[1], sys.argv[2:] or ["qwen3", "gptoss", "deepseek_v3", "gemma3"]
root = os.environ.get("KVASIR_TOKENIZERS") or os.path.join(os.environ.get("KVASIR_CACHE") or os.path.expanduser("~/.cache/kvasir"), "tokenizers")
for family in families:
    for words in (200, 6000):
        for kind in ("prose", "code", "json", "chinese", "unseen"):
            warm, text = (read(os.path.join(corpus, "%s-%d.%s" % (kind, words, part))) for part in ("warm", "text"))
            size = 64 << 10 if kind != "chinese" else (64 << 10) // 3
            row = []
            for name, make in (("fastokens", fastokens.Tokenizer), ("tokenizers", tokenizers.Tokenizer)):
                tok = make.from_file(os.path.join(root, family, "tokenizer.json"))
                t = text if name == "fastokens" else text[:len(text) // 8]  # the latter takes seconds
                row.append("%s %.1f" % (name, measure(tok, warm if name == "fastokens" else warm[:len(warm) // 8], t, size)))
            print(family, words, kind, *row, flush=True)
