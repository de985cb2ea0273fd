"""Makes the small tokenizers of this directory and what the reference says of them.

    pip install tokenizers==0.23.3 && python3 make.py

NAME.json is a tokenizer.json trained on the text below (written for this purpose);
NAME.jsonl has lines {"text", "add_special_tokens", "ids", "decoded"}.
"""
import json, random
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = """the router of a fleet asks which engine holds the prefix and sends the request there; the cache answers, blocks are
counted, tokens are hashed. Ünïcode wörds naïve café déjà-vu façade, 東京 大阪 京都 は 日本 の 都市 です。 привет мир как дела 123 4567 89 0.5
def route(request): return min(targets, key=lambda t: t.cost(request)) # lowest wins
{"id": 17, "name": "block", "hash": "a1b2c3"} ... !!! ??? -- == <> 😀 😀😀 don't can't we'll I'm you've they're he'd it's""".split()
rng = random.Random(11)

def corpus():
    for _ in range(3000):
        yield " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 14)))

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
FALLBACK = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

def train(pre, norm=None, fallback=False, unk=False, fuse=False, size=700, start=()):
    m = models.BPE(unk_token="<unk>" if unk or fallback else None, byte_fallback=fallback, fuse_unk=fuse)
    t = Tokenizer(m)
    if norm: t.normalizer = norm
    if pre: t.pre_tokenizer = pre
    special = list(start) or (FALLBACK if fallback else (["<unk>", "<s>", "</s>"] if unk else []))
    alphabet = [] if fallback or unk else BYTES
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False, limit_alphabet=2000))
    # the trainer adds its special tokens; keep only what each file asks for
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(j))

FLAGGED = [AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True), AddedToken("<b>", lstrip=True, rstrip=True, special=True), AddedToken("word", single_word=True, normalized=False),
           AddedToken("café", normalized=True), AddedToken("<sp>", normalized=False, special=True), AddedToken("<spx>", normalized=False, special=True), AddedToken("<n>", normalized=True), AddedToken(" two words", normalized=False),
           AddedToken("hash", normalized=True, single_word=True)]

def tokenizers():
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=True), size=600)
    t.add_tokens(FLAGGED); t.add_special_tokens(["<s>", "</s>"])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")), add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t.enable_truncation(16); t.enable_padding(length=128)
    yield "roberta", t

    t = train(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]), norm=normalizers.NFC(), size=600)
    t.add_tokens(FLAGGED + [AddedToken("e\u0301<e>", normalized=True)])
    t.decoder = decoders.ByteLevel()
    yield "nfc", t

    t = train(pre_tokenizers.Metaspace(prepend_scheme="always"), fallback=True, fuse=True)
    t.pre_tokenizer = None
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_tokens(FLAGGED)
    yield "llama2", t

    for scheme in ("always", "first", "never"):
        for split in (True, False):
            t = train(pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split), unk=True, fuse=split, size=500)
            t.decoder = decoders.Metaspace(prepend_scheme=scheme, split=split)
            t.add_tokens(FLAGGED)
            yield "metaspace_%s_%s" % (scheme, "split" if split else "whole"), t

    t = train(None, norm=normalizers.Replace(" ", "▁"), fallback=True, fuse=True, size=600)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False), AddedToken("<x>", normalized=False, special=True)])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    yield "gemma", t

    for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            if behavior == "removed" and invert: continue
            t = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(invert), pre_tokenizers.Split("e", behavior, invert), pre_tokenizers.Punctuation(behavior), pre_tokenizers.ByteLevel(False, use_regex=not invert)]), size=420)
            t.decoder = decoders.ByteLevel()
            yield "split_%s%s" % (behavior, "_invert" if invert else ""), t

    t = train(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]), size=600)
    j = json.loads(t.to_str())
    j["model"]["ignore_merges"] = True
    for w in ("Ġzebra", "quux", "æĿ±äº¬"): j["model"]["vocab"][w] = len(j["model"]["vocab"])  # reachable as whole words only
    t = Tokenizer.from_str(json.dumps(j))
    t.decoder = decoders.ByteLevel()
    yield "ignore_merges", t

BITS = WORDS + ["<l>", "<r>", "<b>", "<sp>", "<spx>", "<n>", "word", "words", "hash", "hashes", "café", "cafe\u0301", "e\u0301<e>", " two words", "zebra", "quux", "東京", "<x>", "\n\n", "▁▁",
  "\n", "\t", "  ", "   ", "\u00a0", "\u3000", "_", "-", "ee", "e", "...", "\U0001F9EA", "\u0e01", "\u200d", "▁", "\u2581the", "_word_", "x", "1", "½", "٣", "", "</s>", "<s>", "<unk>", "<0x41>", "aaaaaaaaaaaa", "eeeeeeee", "₹", "\x00"]

def texts():
    yield ""; yield " "; yield "  a"; yield "word"; yield "<l>"; yield " <b> "
    for _ in range(170):
        n = rng.randint(1, 10)
        yield "".join(rng.choice(BITS) + rng.choice(["", "", " ", "  ", "\n"]) for _ in range(n))

for name, t in tokenizers():
    t.save(name + ".json", pretty=False)
    t.no_truncation(); t.no_padding()
    with open(name + ".jsonl", "w", encoding="utf-8") as f:
        for text in texts():
            special = rng.random() < 0.3
            ids = t.encode(text, add_special_tokens=special).ids
            f.write(json.dumps({"text": text, "add_special_tokens": special, "ids": ids, "decoded": t.decode(ids, skip_special_tokens=False)}, ensure_ascii=False) + "\n")
