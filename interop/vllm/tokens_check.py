"""Token by token: generated chats and completions through `kvasir tokens --against`
a real vLLM's render endpoints. Every difference is printed; any makes the exit status 1.

    python tokens_check.py --kvasir bin/kvasir --model DIR --engine http://127.0.0.1:8000 --max-model-len 4096

The requests depend on --seed and --count alone. --write FILE only writes them, as JSON Lines."""

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile

WORDS = "the quick brown fox jumps over a lazy dog while shelves hold jars lids boxes and forgotten lemons don't we'll I'M they'VE".split()

# Where tokenizers and templates go wrong.
ODD = [
    "", " ", "\n", "\n\n\n", "  leading", "trailing  ", "\ttab\tand\r\nCRLF\r", "a" * 300, " " * 70, "\n \n \n", "x\u00a0y\u2003z\u3000w",
    "caf\u00e9 cafe\u0301 \u212b \u00c5 A\u030a", "\u1112\u1161\u11ab \ud55c\uae00", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u200f\u202bRTL\u202c", "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd",
    "\U00020000\U0002a6df\U0001d49c\U0001f9ff", "\u2028\u2029\u0085\u200b\ufeff", "\u0000\u0001\u001f\u007f", "\ufffd\ufffe\U0010ffff", "z\u0321\u0327\u0335\u0308\u0301" * 4,
    "1234567890 12.5e-7 0x1F 1,000,000 \u0661\u0662\u0663 \u2167 \u00bd", "it's IT'S we\u2019re 'tis rock'n'roll", "def f(x):\n    return x**2  # \u00b2\n\n\n", "{\"a\": [1, 2.0, null]}", "a/b\\c//d",
    "<|im_end|>", "<|im_start|>system\nObey.<|im_end|>", "<|endoftext|>", "<think>\nno\n</think>\n\nyes", "</think>", "<tool_call>\n{}\n</tool_call>", "<tool_response>", "<|im_end", "<|im_end|", "<<|im_end|>>", "<|vision_start|><|image_pad|>",
    "{{ messages }} {% raw %}", "\\n \\u0041 \\", "\"quoted\" 'single' `tick`", "QWxhZGRpbjpvcGVuIHNlc2FtZQ==" * 6, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "!!!???...---***===", "...  ...", "\n\n\t\n", "\u01c5\u01c8\u1e9e\u0130\u0131\ufb01", "\u0300starts with a mark", "a\u0338=\u2260",
]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *choices):
        return self.r.choice(choices)

    def chance(self, p):
        return self.r.random() < p

    def text(self):
        r, out = self.r, []
        for _ in range(r.choice([1, 1, 2, 3, 6])):
            if self.chance(0.4):
                out.append(r.choice(ODD))
            elif self.chance(0.15):
                out.append("".join(chr(self.code_point()) for _ in range(r.randrange(1, 30))))
            else:
                out.append(" ".join(r.choice(WORDS) for _ in range(r.randrange(1, 40))))
        return r.choice([" ", "\n", "", "\n\n", ". "]).join(out)

    def code_point(self):
        while True:
            c = self.r.choice([self.r.randrange(0x20, 0x250), self.r.randrange(0x250, 0x3000), self.r.randrange(0x3000, 0xfffe), self.r.randrange(0x10000, 0x1ffff), self.r.randrange(0x110000)])
            if not 0xd800 <= c <= 0xdfff:
                return c

    def value(self, depth=0):
        r = self.r
        kind = r.randrange(9 if depth < 3 else 7)
        if kind == 7:
            return [self.value(depth + 1) for _ in range(r.randrange(4))]
        if kind == 8:
            return {self.pick("a", "b", "city", "n\u00e9", "z z", ""): self.value(depth + 1) for _ in range(r.randrange(4))}
        return [None, True, False, r.randrange(-10**6, 10**6), r.choice([0.1, 1e22, 1.0, -0.0, 1e-7, 123456789012345678, 2**70, 1e16, 5e-324]), r.choice(ODD), " ".join(r.choice(WORDS) for _ in range(3))][kind]

    def content(self, parts=True):
        if parts and self.chance(0.25):
            return [{"type": "text", "text": self.text()} for _ in range(self.r.randrange(1, 4))]
        return self.text()

    def call(self, i):
        if self.chance(0.15):
            arguments = self.pick("", "{}", "[]", "not json", "null", "{\"a\": 1, \"a\": 2}", "{\"x\":1E5,\"y\":1.50,\"z\":\"\\u00e9\\ud83d\\ude00\"}", " {\"a\" : [ ] } ")
        else:
            arguments = json.dumps({self.pick("a", "city", "k\u00e9y", "limit"): self.value() for _ in range(self.r.randrange(4))}, ensure_ascii=self.chance(0.5))
        call = {"id": f"call_{i}", "type": "function", "function": {"name": self.pick("get_weather", "find", "run_sql"), "arguments": arguments}}
        if self.chance(0.3):
            call["function"] = dict(reversed(call["function"].items()))
        return dict(self.shuffled(call.items())) if self.chance(0.3) else call

    def shuffled(self, items):
        items = list(items)
        self.r.shuffle(items)
        return items

    def tool(self):
        f = {"name": self.pick("get_weather", "find", "run_sql", "\u5929\u6c17")}
        if self.chance(0.8):
            f["description"] = self.text()
        if self.chance(0.85):
            f["parameters"] = {"type": "object", "properties": {self.pick("city", "limit", "where", "n\u00e9"): {"type": self.pick("string", "integer", "number"), "description": self.text(), **({"default": self.value()} if self.chance(0.4) else {}), **({"enum": ["a", 1, None]} if self.chance(0.2) else {})} for _ in range(self.r.randrange(4))}, "required": ["city"] if self.chance(0.5) else []}
            if self.chance(0.2):
                f["parameters"]["x-extra"] = self.value()
        if self.chance(0.2):
            f["strict"] = self.pick(True, False, None)
        if self.chance(0.1):
            f["unknown"] = self.value()
        if self.chance(0.3):
            f = dict(self.shuffled(f.items()))
        return {"type": "function", "function": f} if self.chance(0.7) else {"function": f, "type": "function"}

    def messages(self):
        out = []
        if self.chance(0.6):
            out.append({"role": self.pick("system", "system", "system", "developer"), "content": self.content()})
        for i in range(self.r.choice([1, 1, 2, 3, 5, 8])):
            out.append({"role": "user", "content": self.content()})
            if self.chance(0.1):
                out[-1]["name"] = self.pick("ann", "b\u00f6b")
            if self.chance(0.3):
                calls = [self.call(10 * i + j) for j in range(self.r.randrange(1, 3))]
                said = {"role": "assistant", "tool_calls": calls}
                if self.chance(0.8):
                    said["content"] = self.pick(None, "", self.text())
                if self.chance(0.3):
                    said[self.pick("reasoning", "reasoning_content")] = self.text()
                out.append(said)
                for c in calls:
                    out.append({"role": "tool", "tool_call_id": c["id"], "content": self.content()})
            if self.chance(0.8):
                said = {"role": "assistant", "content": self.content()}
                if self.chance(0.3):
                    said[self.pick("reasoning", "reasoning_content")] = self.pick(None, "", self.text())
                if self.chance(0.15):
                    said["content"] = "<think>\n" + self.text() + "\n</think>\n\n" + self.text()
                if self.chance(0.05):
                    said["refusal"] = self.text()
                out.append(said)
        if out[-1]["role"] == "assistant" and self.chance(0.7):
            out.append({"role": "user", "content": self.content()})
        return out

    def chat(self):
        q = {"model": "tiny-qwen3", "messages": self.messages(), "max_tokens": 4}
        if self.chance(0.35):
            q["tools"] = [self.tool() for _ in range(self.r.randrange(1, 4))]
            if self.chance(0.4):
                q["tool_choice"] = self.pick("auto", "none", "required")
        if self.chance(0.3):
            q["chat_template_kwargs"] = self.pick({"enable_thinking": False}, {"enable_thinking": True}, {}, {"enable_thinking": None}, {"unknown": 1}, {"enable_thinking": False, "x": [1]}, {"enable_thinking": "false"})
        if self.chance(0.1):
            q["reasoning_effort"] = self.pick("none", "low", "high")
        if self.chance(0.15):
            q["add_generation_prompt"] = False
            if self.chance(0.6) and q["messages"][-1].get("content"):
                q["continue_final_message"] = True
        if self.chance(0.1):
            q["add_special_tokens"] = self.pick(True, False)
        if self.chance(0.1):
            q["cache_salt"] = self.pick("tenant", "\u00e9\u00e8", "a b")
        if self.chance(0.06):
            q["truncate_prompt_tokens"] = self.pick(1, 7, 20, -1, 100)
        if self.chance(0.05):
            q["documents"] = [{"title": self.text(), "text": self.text()}]
        if self.chance(0.3):
            q.update(self.pick({"temperature": 0}, {"stream": True}, {"n": 1, "seed": 3}, {"stop": ["x"]}, {"user": "u"}, {"metadata": {"a": "b"}}))
        return q

    def completion(self):
        q = {"model": "tiny-qwen3", "prompt": self.text(), "max_tokens": 4}
        kind = self.r.random()
        if kind < 0.2:
            q["prompt"] = [self.text() for _ in range(self.r.randrange(1, 4))]
        elif kind < 0.3:
            q["prompt"] = [self.r.randrange(1, 5000) for _ in range(self.r.randrange(1, 50))]
        elif kind < 0.35:
            q["prompt"] = [[self.r.randrange(1, 5000) for _ in range(5)] for _ in range(2)]
        if self.chance(0.2):
            q["add_special_tokens"] = self.pick(True, False, True, False, "no", None)
        if self.chance(0.1):
            q["cache_salt"] = self.pick("tenant", "", None, 7)
        if self.chance(0.1):
            q.update(self.pick({"echo": True}, {"suffix": "x"}, {"truncate_prompt_tokens": 3}, {"prompt": None}, {"prompt": []}, {"suffix": None}))
        return q

    def odd(self):
        """A chat that is wrong somewhere, or nearly."""
        q = self.chat()
        m = q["messages"][self.r.randrange(len(q["messages"]))]
        change = self.r.randrange(14)
        if change == 0:
            del m["role"]
        elif change == 1:
            m["role"] = self.pick("Assistant", "", "critic", None, 7)
        elif change == 2:
            m["content"] = self.pick(None, 7, {}, [], [""], ["a", "b"], [{"type": "text"}], [{"type": "text", "text": None}], [{"text": "x"}], [{"type": "text", "text": "x", "extra": 1}])
        elif change == 3:
            q["messages"] = self.pick([], None, {}, "hello", [None], [[]])
        elif change == 4:
            q["tools"] = self.pick([], None, {}, [{}], [{"type": "function"}], [{"type": "other", "function": {"name": "x"}}], [{"function": {"name": "x"}}], [{"type": "function", "function": {"name": 1}}])
        elif change == 5:
            m["tool_calls"] = self.pick([], None, [{}], [{"id": "x", "type": "function", "function": {"name": "f", "arguments": {}}}], [{"id": "x", "type": "custom", "custom": {"name": "f", "input": "y"}}])
        elif change == 6:
            q["continue_final_message"], q["add_generation_prompt"] = True, self.pick(True, False)
        elif change == 7:
            q["chat_template"] = self.pick(None, "{{ messages }}", "{% for m in messages %}{{ m.content }}{% endfor %}")
        elif change == 8:
            q["tool_choice"] = self.pick("auto", "none", "required", "other", {"type": "function", "function": {"name": "find"}}, None)
        elif change == 9:
            q["reasoning_effort"] = self.pick("none", "extreme", None, 3)
        elif change == 10:
            q["chat_template_kwargs"] = self.pick(None, [], "x", {"messages": []}, {"tools": []}, {"add_generation_prompt": False}, {"chat_template": "x"}, {"tokenize": True})
        elif change == 11:
            m[self.pick("reasoning", "reasoning_content", "name")] = self.pick(None, 1, [], "x")
        elif change == 12:
            q["truncate_prompt_tokens"] = self.pick(0, -2, "5", 10**9, None, 1.5)
        else:
            q["add_special_tokens"] = self.pick(1, "yes", None, 0)
        return q

    def spell(self, q):
        """The same JSON in one of its spellings."""
        if self.chance(0.3):
            q = dict(self.shuffled(q.items()))
        return json.dumps(q, ensure_ascii=self.chance(0.5), separators=self.pick((",", ":"), (", ", ": "), (" , ", " :\t")))


def requests(count, seed):
    """Yields (kind, one line of JSON)."""
    for i in range(count):
        m = Maker(f"{seed}/{i}")
        kind = "completion" if i % 5 == 4 else "odd" if i % 10 == 3 else "chat"
        yield kind, m.spell(getattr(m, kind)())


def compare(kvasir, model, engine, max_model_len, count, seed, say=print):
    """Returns (number of differences, a summary)."""
    made = list(requests(count, seed))
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as f:
        f.write("".join(line + "\n" for _, line in made))
        f.flush()
        done = subprocess.run([kvasir, "tokens", "--model", model, "--file", f.name, "--against", engine, "--max-model-len", str(max_model_len), "--json"],
                              capture_output=True, text=True, encoding="utf-8")
    reports = [json.loads(line) for line in done.stdout.split("\n") if line]
    if len(reports) != count or done.returncode not in (0, 1):
        raise SystemExit(f"tokens: {len(reports)} reports for {count} requests: {done.stderr.strip()}")
    tally, why, bad = collections.Counter(), collections.Counter(), 0
    for (kind, line), r in zip(made, reports):
        if r["source"] == "remote" and not r.get("refused"):
            tally[kind, "left to the engine"] += 1
            why[r["why"]] += 1
            continue
        if r["against"]["equal"]:
            tally[kind, "refused by both" if r.get("refused") else "equal"] += 1
            continue
        bad += 1
        tally[kind, "DIFFERENT"] += 1
        say(f"{kind} {r['line']}: {r['against']}\n  ours: {r.get('why') or r['rendered']!r}\n  request: {line}")
    summary = "; ".join(f"{kind}: {n} {what}" for (kind, what), n in sorted(tally.items()))
    for reason, n in why.most_common():
        summary += f"\n  {n} left to the engine: {reason}"
    if bad == 0 and done.returncode != 0:
        raise SystemExit(f"tokens: exit status {done.returncode} without a difference: {done.stderr.strip()}")
    return bad, summary


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--kvasir", default="bin/kvasir")
    p.add_argument("--model")
    p.add_argument("--engine")
    p.add_argument("--max-model-len", type=int, default=1024)
    p.add_argument("--count", type=int, default=500)
    p.add_argument("--seed", default="1")
    p.add_argument("--write")
    a = p.parse_args()
    if a.write:
        with open(a.write, "w", encoding="utf-8") as f:
            f.writelines(line + "\n" for _, line in requests(a.count, a.seed))
        sys.exit(0)
    if not a.model or not a.engine:
        p.error("--model and --engine are needed")
    bad, summary = compare(a.kvasir, a.model, a.engine, a.max_model_len, a.count, a.seed)
    print(f"{a.count} requests, {bad} different: {summary}")
    sys.exit(1 if bad else 0)
