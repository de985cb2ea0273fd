"""Requests as the checks send them, and conversations to send."""

import dataclasses
import http.client
import json
import random
import urllib.parse

import fleet

MODEL = "tiny-qwen3"
WORDS = ("harbor window lantern copper meadow signal orbit velvet thunder pepper island ladder garden mirror cotton river "
         "candle basket engine marble forest pocket anchor bridge saddle winter hammer branch silver kettle").split()


def words(chance, n):
    return " ".join(chance.choice(WORDS) for _ in range(n))


def chat(messages, tokens=16, **more):
    return {"model": MODEL, "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


def completion(prompt, tokens=8, **more):
    return {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


@dataclasses.dataclass
class Answer:
    """What came back of one request that was not streamed."""
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)

    @property
    def replica(self):
        return self.headers.get("x-kvasir-replica")

    @property
    def predicted(self):
        """Prompt tokens that the router expected to be cached; None if it had no tokens."""
        value = self.headers.get("x-kvasir-cached-tokens")
        return None if value is None else int(value.split("/")[0])

    @property
    def length(self):
        """Prompt tokens as the router counted them."""
        value = self.headers.get("x-kvasir-cached-tokens")
        return None if value is None else int(value.split("/")[1])

    @property
    def cached(self):
        return self.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    @property
    def text(self):
        choice = self.json()["choices"][0]
        return choice["message"]["content"] if "message" in choice else choice["text"]


def post(url, body, headers=None, timeout=120):
    """Posts to URL; the path says the endpoint."""
    return Answer(*fleet.http("POST", url, body, headers, timeout))


def ask(base, body, headers=None, timeout=120):
    """Posts a chat or a completion, by what the body has, and wants a 200."""
    a = post(base + ("/v1/chat/completions" if "messages" in body else "/v1/completions"), body, headers, timeout)
    assert a.status == 200, f"status {a.status}, want 200: {a.body[:400]!r}"
    return a


class Stream:
    """One streamed request, read from the socket as it comes."""

    def __init__(self, base, body, path=None, timeout=120, headers=None):
        at = urllib.parse.urlsplit(base)
        path = path or ("/v1/chat/completions" if "messages" in body else "/v1/completions")
        self.conn = http.client.HTTPConnection(at.hostname, at.port, timeout=timeout)
        self.conn.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json", **(headers or {})})
        self.response = self.conn.getresponse()
        self.status, self.raw = self.response.status, b""
        self.answer = Answer(self.status, self.response.headers, b"")
        self.replica = self.answer.replica

    def read(self, events):
        """Reads on until that many more events with data have come, or the end; returns all that has come."""
        while events > 0 and (line := self.response.readline()):
            self.raw += line
            events -= line.startswith(b"data:")
        return self.raw

    def rest(self):
        """Reads to the end. A connection that breaks off raises."""
        self.raw += self.response.read()
        self.conn.close()
        return self.raw

    def close(self):
        """Leaves, as a client does that presses stop: both sides of the socket are shut."""
        self.response.close()
        self.conn.close()


@dataclasses.dataclass
class Ended:
    """What a stream was, seen from its end."""
    events: list   # decoded data lines, without [DONE]
    errors: list   # those that are errors
    done: int      # times that [DONE] came
    said: dict     # by choice, what was said in all its pieces: text, arguments of tools
    usage: dict

    @property
    def text(self):
        return self.said.get(0, "")

    @property
    def cached(self):
        return self.usage["prompt_tokens_details"]["cached_tokens"]


def decode(raw):
    """Reads the bytes of an event stream. They must be whole events."""
    assert raw.endswith(b"\n\n"), f"the stream ends in the middle of an event: {raw[-200:]!r}"
    out = Ended([], [], 0, {}, {})
    for line in raw.split(b"\n"):
        if not line.startswith(b"data:"):
            assert not line or line.startswith((b":", b"event:")), f"a line that is no event: {line!r}"
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            out.done += 1
            continue
        event = json.loads(data)
        out.events.append(event)
        if event.get("error") or event.get("type") == "error":
            out.errors.append(event)
        out.usage = event.get("usage") or out.usage
        delta = event.get("delta")  # of Anthropic's messages an object, of Responses a string
        pieces = [(0, delta if isinstance(delta, str) else (delta or {}).get("text"))]
        for choice in event.get("choices") or []:
            delta = choice.get("delta") or {}
            pieces += [(choice["index"], delta.get("content") or choice.get("text"))]
            pieces += [(choice["index"], call["function"].get("arguments")) for call in delta.get("tool_calls") or []]
        for index, piece in pieces:
            out.said[index] = out.said.get(index, "") + (piece or "")
    return out


class Conversation:
    """A chat that grows by a turn at a time; deterministic by its seed. Conversations
    of one group share their system prompt."""

    def __init__(self, seed, group=0, system=150, user=25):
        self.chance, self.user, self.seed = random.Random(seed * 7919 + 1), user, seed
        self.messages = [{"role": "system", "content": f"Policy {group}. " + words(random.Random(group), system)}]

    def say(self):
        self.messages.append({"role": "user", "content": words(self.chance, self.user)})
        return self.messages

    def turn(self, base, tokens=16, **more):
        """Sends the next turn and takes the answer into the history."""
        a = ask(base, chat(self.say(), tokens, **more))
        self.messages.append({"role": "assistant", "content": a.text})
        return a


# What compiles on first use; sent to each engine before anything is measured.
WARM = [
    chat([{"role": "user", "content": "x"}], 2, logprobs=True, top_logprobs=2),
    {**chat([{"role": "user", "content": "x"}], 8), "ignore_eos": False, "response_format": {"type": "json_object"}},
]
