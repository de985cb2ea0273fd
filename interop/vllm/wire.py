"""What goes over the wire: the router's answers against an engine's own, byte for byte."""

import json
import re
import subprocess

import openai

import fleet
from client import MODEL, Stream, ask, chat, completion, decode, post
from report import check
from tap import Tap

TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather in a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Bergen"]}}, "required": ["city"], "additionalProperties": False}}}
# Random weights call no tool: a grammar of one sentence makes them say the call.
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
TOOLS = {"tools": [TOOL], "tool_choice": "auto", "ignore_eos": False, "structured_outputs": {"choice": [CALL]}}
HELLO = [{"role": "system", "content": "You answer shortly. " * 12}, {"role": "user", "content": "Tell me of the harbor."}]
USAGE = {"stream_options": {"include_usage": True}}

# Headers that differ between two answers of one engine, and those that the router adds.
VOLATILE = {"date", "x-request-id", "x-kvasir-replica", "x-kvasir-cached-tokens", "x-kvasir-decision-us"}


def still(raw):
    """An answer without what differs between two answers to one request: ids and times."""
    raw = re.sub(rb'"(id|item_id|request_id)":\s*"[^"]*"', rb'"\1":"x"', raw)
    return re.sub(rb'"(created|created_at|completed_at)":\s*[0-9.]+', rb'"\1":0', raw)


def lines(headers):
    return sorted((k.lower(), v) for k, v in headers.items() if k.lower() not in VOLATILE)


def once(base, path, body, stream):
    """One request; returns status, headers and body."""
    if stream:
        s = Stream(base, body, path)
        return s.status, s.response.headers, s.rest()
    a = post(base + path, body)
    return a.status, a.headers, a.body


def shown(raw):
    """An answer as it is compared. The choices of a stream take turns as the engine's
    scheduling has it: where there are several, the order of the events is not compared."""
    raw = still(raw)
    several = raw.startswith(b"data:") and b'"index":1' in raw
    return b"\n".join(sorted(raw.split(b"\n"))) if several else raw


def same(w, path, body, stream=False, tries=6):
    """Both engines and the router answer alike. The engines are asked twice first, so
    that all have the same in their caches. How many tokens share one event is up to the
    engine's own scheduling, and a busy machine changes it: a stream that differs only in
    that (what it says is equal) is asked for again. That the router itself changes
    nothing, not even that, is for the check with the tap to show."""
    for e in (w.a, w.b):
        for _ in range(2):
            once(e.url, path, body, stream)
    w.router.quiet(0.1)
    for attempt in range(tries):
        want = once(w.a.url, path, body, stream)
        got = once(w.router.url, path, body, stream)
        assert got[0] == want[0], f"status {got[0]}, the engine's own is {want[0]}: {got[2][:300]!r}"
        assert lines(got[1]) == lines(want[1]), f"headers {lines(got[1])}, the engine's own are {lines(want[1])}"
        if shown(got[2]) == shown(want[2]):
            return got
        if not (stream and want[0] == 200 and decode(got[2]).said == decode(want[2]).said):
            break
    assert shown(got[2]) == shown(want[2]), f"after {attempt + 1} tries the bytes differ:\n         router {still(got[2])[:1500]!r}\n         engine {still(want[2])[:1500]!r}"


STREAMS = {
    "chat": ("/v1/chat/completions", chat(HELLO, 24, **USAGE)),
    "chat with continuous usage": ("/v1/chat/completions", chat(HELLO, 8, stream_options={"include_usage": True, "continuous_usage_stats": True})),
    "chat without usage": ("/v1/chat/completions", chat(HELLO, 8)),
    "completion": ("/v1/completions", completion("The harbor in winter is", 16, **USAGE)),
    "token-id prompt": ("/v1/completions", completion(list(range(5000, 5130)), 16, **USAGE)),
    "several prompts": ("/v1/completions", completion(["One harbor", "Two harbors"], 4, **USAGE)),
    "n=2": ("/v1/chat/completions", chat(HELLO, 8, n=2, temperature=1, seed=5, **USAGE)),
    "logprobs": ("/v1/chat/completions", chat(HELLO, 6, logprobs=True, top_logprobs=3, **USAGE)),
    "tool call": ("/v1/chat/completions", {**chat(HELLO, 60, **USAGE), **TOOLS}),
    "messages": ("/v1/messages", {"model": MODEL, "max_tokens": 8, "messages": HELLO[1:], "temperature": 0}),
    "responses": ("/v1/responses", {"model": MODEL, "max_output_tokens": 8, "input": "Tell me of the harbor.", "temperature": 0}),
}


def _register(name, path, body):
    @check(f"wire: stream of {name}, byte for byte as the engine's own")
    def stream(w):
        status, _, raw = same(w, path, body, stream=True)
        assert status == 200, f"status {status}: {raw[:300]!r}"

    @check(f"wire: {name} without a stream, byte for byte as the engine's own")
    def whole(w):
        plain = {k: v for k, v in body.items() if k != "stream_options"}
        status, _, raw = same(w, path, plain)
        assert status == 200, f"status {status}: {raw[:300]!r}"

    return stream, whole


PAIRS = [f for name, (path, body) in STREAMS.items() for f in _register(name, path, body)]


@check("wire: what the engine wrote is what the client reads, every byte, ids and times too")
def tapped(w):
    """A tap between the router and the engine writes down what the engine sends."""
    tap = Tap(w.a.port)
    router = w.spawn_router([tap])
    try:
        for name, (path, body) in STREAMS.items():
            for stream in (True, False):
                body = {k: v for k, v in body.items() if stream or k != "stream_options"}
                status, _, got = once(router.url, path, body, stream)
                wrote = tap.bodies(path)  # ids make them unique
                assert status == 200 and got in wrote, f"{name}, stream={stream}: status {status}\n         client {got[:1500]!r}\n         engine {wrote[-1:]}"
    finally:
        router.stop()
        tap.close()
    return f"{len(STREAMS)} kinds, with and without stream"


@check("wire: curl gets the stream as the engine sends it")
def curl(w):
    def get(base):
        return subprocess.run(["curl", "-sSN", "--max-time", "60", base + "/v1/completions", "-H", "Content-Type: application/json",
                               "-d", json.dumps(completion("The lantern", 1, stream=True, **USAGE))], check=True, capture_output=True).stdout
    for e in (w.a, w.b):
        get(e.url)
    want, got = get(w.a.url), get(w.router.url)
    assert still(got) == still(want), f"the bytes differ:\n         router {got!r}\n         engine {want!r}"


@check("wire: openai-python: chat, stream, n=2, logprobs, tools, completions, models")
def client(w):
    c = openai.OpenAI(base_url=w.router.url + "/v1", api_key="none", max_retries=0, timeout=60)
    more = {"extra_body": {"ignore_eos": True}}
    r = c.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8, temperature=0, **more)
    assert r.usage.completion_tokens == 8 and r.choices[0].message.content, f"chat: {r}"
    text, usage = "", None
    for chunk in c.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}, **more):
        text += (chunk.choices and chunk.choices[0].delta.content) or ""
        usage = chunk.usage or usage
    assert text == r.choices[0].message.content, f"the stream's text is {text!r}, the whole answer's {r.choices[0].message.content!r}"
    assert usage.prompt_tokens == r.usage.prompt_tokens and usage.prompt_tokens_details.cached_tokens > 0, f"usage: {usage}"
    two = c.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4, n=2, logprobs=True, top_logprobs=2, **more)
    assert [x.index for x in two.choices] == [0, 1] and len(two.choices[1].logprobs.content) == 4, f"n=2 with logprobs: {two}"
    r = c.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=60, tools=[TOOL], extra_body={"structured_outputs": {"choice": [CALL]}}).choices[0]
    assert r.finish_reason == "tool_calls" and json.loads(r.message.tool_calls[0].function.arguments) == {"city": "Oslo"}, f"tool call: {r}"
    arguments = ""
    for chunk in c.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=60, tools=[TOOL], stream=True, extra_body={"structured_outputs": {"choice": [CALL]}}):
        for call in (chunk.choices and chunk.choices[0].delta.tool_calls) or []:
            arguments += call.function.arguments or ""
    assert json.loads(arguments) == {"city": "Oslo"}, f"streamed tool call: {arguments!r}"
    ids = c.completions.create(model=MODEL, prompt=list(range(5000, 5070)), max_tokens=4)
    assert ids.usage.prompt_tokens == 70, f"token ids: {ids}"
    assert [m.id for m in c.models.list()] == [MODEL], "models"
    try:
        c.chat.completions.create(model="no-such-model", messages=HELLO)
        raise AssertionError("an unknown model was accepted")
    except openai.NotFoundError as e:
        assert e.body["code"] == "model_not_found", f"unknown model: {e.body}"


@check("wire: tokens of tools, tool results and token ids are the engine's: predicted == cached")
def kinds(w):
    messages = HELLO + [{"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}]},
                        {"role": "tool", "tool_call_id": "c1", "content": "Rain, " * 30}, {"role": "user", "content": "And Bergen?"}]
    bodies = {"tools": {**chat(HELLO, 8), "tools": [TOOL], "tool_choice": "none"}, "tool result": {**chat(messages, 8), "tools": [TOOL], "tool_choice": "none"},
              "template arguments": chat(messages, 8, chat_template_kwargs={"enable_thinking": False}), "parts": chat([{"role": "user", "content": [{"type": "text", "text": "harbor " * 50}]}], 8),
              "continued": chat([*HELLO, {"role": "assistant", "content": "The harbor"}], 8, add_generation_prompt=False, continue_final_message=True),
              "salt": chat(HELLO, 8, cache_salt="tenant-1"), "ids": completion(list(range(5000, 5130))), "unicode": chat([{"role": "user", "content": "Ærøskøbing 東京 🚢 " * 12}], 8)}
    for name, body in bodies.items():
        for again in (False, True):
            w.router.quiet(0.1)
            a = ask(w.router.url, body)
            assert a.predicted is not None, f"{name}: the router had no tokens"
            assert (a.predicted, a.length) == (a.cached, a.json()["usage"]["prompt_tokens"]), f"{name}: predicted {a.predicted} of {a.length}, the engine had {a.cached} of {a.json()['usage']['prompt_tokens']}"
        assert a.cached > 0, f"{name}: nothing cached the second time, on {a.replica}"
    return ", ".join(bodies)


@check("wire: a 400 of the engine reaches the client unchanged")
def refusals(w):
    refused = {"too many tokens": ("/v1/chat/completions", chat(HELLO, 5000)), "negative temperature": ("/v1/chat/completions", chat(HELLO, 4, temperature=-1)),
               "messages of a wrong type": ("/v1/chat/completions", {"model": MODEL, "messages": 5}), "empty prompt": ("/v1/completions", completion([])),
               "prompt too long": ("/v1/completions", completion(list(range(1, w.a.max_len + 200)), 1)), "n of 0": ("/v1/completions", completion("x", 1, n=0)),
               "no messages": ("/v1/chat/completions", {"model": MODEL})}
    for name, (path, body) in refused.items():
        for stream in (False, True):
            body = {**body, "stream": stream}
            want, got = post(w.a.url + path, body), post(w.router.url + path, body)
            assert want.status == 400, f"{name}: the engine itself answers {want.status}: {want.body[:200]!r}"
            assert (got.status, still(got.body)) == (want.status, still(want.body)), f"{name}, stream={stream}: {got.status} {got.body!r}, the engine's own is {want.status} {want.body!r}"
            assert lines(got.headers) == lines(want.headers), f"{name}: headers {lines(got.headers)}, the engine's own are {lines(want.headers)}"
    return f"{len(refused)} kinds, with and without stream"


@check("wire: other paths: models, tokenize, detokenize, render, an unknown one")
def others(w):
    for method, path, body in (("POST", "/tokenize", {"model": MODEL, "prompt": "harbor"}), ("POST", "/detokenize", {"model": MODEL, "tokens": [5000, 5001]}),
                               ("POST", "/v1/chat/completions/render", {"model": MODEL, "messages": HELLO}), ("POST", "/v1/embeddings", {"model": MODEL, "input": "x"})):
        want, got = fleet.http(method, w.a.url + path, body), fleet.http(method, w.router.url + path, body)
        assert (got[0], still(got[2])) == (want[0], still(want[2])), f"{path}: {got[0]} {got[2][:300]!r}, the engine's own is {want[0]} {want[2][:300]!r}"
    models = json.loads(fleet.http("GET", w.router.url + "/v1/models")[2])
    assert [m["id"] for m in models["data"]] == [MODEL] and models["data"][0]["max_model_len"] == w.a.max_len, f"models: {models}"
    for path in ("/reset_prefix_cache", "/pause", "/no/such/path"):
        status = fleet.http("POST", w.router.url + path)[0]
        assert status in (404, 405), f"POST {path} through the router is {status}: engines' administrative paths are not for clients"
    bad = fleet.http("POST", w.router.url + "/v1/chat/completions", b'{"model": "tiny-qwen3", "messages": [')
    assert bad[0] == 400 and json.loads(bad[2])["error"]["type"] == "invalid_request_error", f"JSON that is cut off: {bad[0]} {bad[2]!r}"
    assert fleet.http("GET", w.router.url + "/health")[0] == fleet.http("GET", w.router.url + "/ready")[0] == 200, "health or ready is not 200"
