"""Clients that leave, engines that die, hang, shut down or are late, and the end of the
router itself."""

import concurrent.futures
import http.client
import json
import random
import signal
import socket
import time

import fleet
from client import Conversation, Stream, ask, completion, decode, post
from report import check
from truth import agree, spot

LONG = 900


def fresh(seed, n=70):
    """A prompt of n tokens that nobody has."""
    chance = random.Random(seed)
    return [chance.randrange(1000, 90000) for _ in range(n)]


def streaming_on(w, *wanted, router=None):
    """Long streams through the router; wanted has (engine, seed, tokens), and each runs on
    its engine, for that holds its prompt. Returns one, or a list."""
    for engine, seed, _ in wanted:
        ask(engine.url, completion(fresh(seed), 1))
    w.router.quiet()
    streams = []
    for engine, seed, tokens in wanted:
        s = Stream((router or w.router).url, completion(fresh(seed), tokens, stream_options={"include_usage": True}))
        assert s.status == 200 and s.replica == engine.name(), f"the stream is on {s.replica} with status {s.status}; {engine.name()} holds its prompt and is idle"
        s.read(5)
        streams.append(s)
    return streams if len(wanted) > 1 else streams[0]


def one_error(s, what):
    """Reads the stream to its end: whole events, exactly one error, the last event, then [DONE]."""
    try:
        raw = s.rest()
    except (OSError, http.client.HTTPException) as e:
        raise AssertionError(f"{what}: the connection broke ({type(e).__name__}: {e}) instead of one error event; so far {s.raw[-200:]!r}") from e
    end = decode(raw)
    assert len(end.errors) == 1, f"{what}: {len(end.errors)} error events, want exactly one; the end is {raw[-400:]!r}"
    assert end.events[-1] is end.errors[0] and end.done == 1, f"{what}: the error must be the last event before one [DONE]; the end is {raw[-400:]!r}"
    assert end.errors[0]["error"]["message"], f"{what}: {end.errors[0]}"
    return end.errors[0]["error"]["message"]


@check("start: engines that are down: it serves all the same, says which are down, answers 503 with Retry-After")
def down_at_start(w):
    f = w.router.wait_for(lambda f: all(r["state"] == "down" and r["reason"] for r in f["replicas"]), 20, "both engines to be known as down")
    assert {r["name"] for r in f["replicas"]} == {w.a.name(), w.b.name()}, f"the fleet is {f}"
    a = post(w.router.url + "/v1/completions", completion("x"))
    assert a.status == 503 and int(a.headers["Retry-After"]) >= 1 and a.json()["error"]["message"], f"{a.status} {dict(a.headers)} {a.body!r}"
    assert fleet.http("GET", w.router.url + "/health")[0] == 200, "/health says that the router is dead"
    assert fleet.http("GET", w.router.url + "/ready")[0] == 503, "/ready is not 503 though no engine is up"


@check("start: it takes engines in when they come")
def up_later(w):
    w.start_engines()
    w.router.wait_up()
    assert fleet.http("GET", w.router.url + "/ready")[0] == 200, "/ready is not 200"


@check("disconnect: a client that leaves a stream stops the generation")
def leave_stream(w):
    before = w.a.metric("generation_tokens_total")
    s = streaming_on(w, (w.a, 21, LONG))
    assert w.a.running() == 1, f"{w.a.running()} requests run on the engine, want 1"
    s.close()
    w.gone(w.a)
    made = w.a.metric("generation_tokens_total") - before
    assert made < LONG * 3 / 4, f"the engine made {made} tokens of {LONG}: it was not stopped, it ended"
    w.router.quiet()
    d = next(d for d in w.router.decisions(5) if d["prompt_tokens"] == 70)
    assert d["outcome"] == "cancelled", f"the receipt says {d['outcome']}"
    return f"{made:.0f} tokens made of {LONG}"


@check("disconnect: a client that leaves without an answer yet stops the generation")
def leave_whole(w):
    before = [e.metric("generation_tokens_total") for e in (w.a, w.b)]
    body = json.dumps(completion(fresh(22), LONG)).encode()
    with socket.create_connection(("127.0.0.1", w.router.port)) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        end = time.monotonic() + 20
        while w.a.running() + w.b.running() < 1:
            assert time.monotonic() < end, "the request never ran on an engine"
            time.sleep(0.01)
    w.gone(w.a, w.b)
    made = sum(e.metric("generation_tokens_total") - b for e, b in zip((w.a, w.b), before))
    assert made < LONG * 3 / 4, f"the engines made {made} tokens of {LONG}: the request was not stopped, it ended"
    return f"{made:.0f} tokens made of {LONG}"


@check("kill -9 in the middle of a stream: that client gets exactly one error event, all others an answer")
def kill(w):
    s, other = streaming_on(w, (w.a, 31, LONG), (w.b, 32, 300))
    convs = [Conversation(310 + i, i) for i in range(4)]
    began = time.monotonic()
    w.a.stop(signal.SIGKILL)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # at once, before the router can have noticed
        for a in pool.map(lambda c: c.turn(w.router.url), convs):
            assert a.replica == w.b.name(), f"answered by {a.replica}"
    message = one_error(s, "the stream on the killed engine")
    took = time.monotonic() - began
    end = decode(other.rest())
    assert not end.errors and end.usage["completion_tokens"] == 300, f"the stream on the other engine: {end.errors or end.usage}"
    for i in range(12):
        assert ask(w.router.url, completion(fresh(31) + fresh(330 + i, 10))).replica == w.b.name()
    w.router.wait_for(lambda f: any(r["name"] == w.a.name() and r["state"] != "up" for r in f["replicas"]), 20, "the killed engine to be known as down")
    return f"after {took:.1f} s: {message}"


@check("after its restart the index is right again")
def after_kill(w):
    w.restart(w.a)
    w.router.quiet()
    a = agree(ask(w.router.url, completion(fresh(31))), "the prompt that was on the killed engine")
    return f"{spot(w, 340, 24)} requests, predicted == cached; the old prompt: {a.cached} cached on {a.replica}"


@check("SIGTERM of an engine with --shutdown-timeout: another engine takes what it aborts, the open stream ends as a whole")
def graceful(w):
    ids, text = completion(fresh(42)), completion("The harbor in winter, " * 20)
    for body in (ids, text):
        ask(w.b.url, body)  # it holds the prompts: by its cache, the router would choose it
    open_ = streaming_on(w, (w.b, 41, LONG))
    try:
        w.b.process.send_signal(signal.SIGTERM)  # to the server alone, as an orchestrator does
        # What the engine says by itself while it drains: 200, no text and finish_reason "abort"
        # to token ids; a 500 to text, for its tokenizer's threads have ended.
        end, seen = time.monotonic() + 20, []
        while (200, "abort") not in seen:
            assert time.monotonic() < end, f"the engine was to answer 200 with finish_reason abort; it answered {seen}: this shows nothing"
            x = post(w.b.url + "/v1/completions", ids)
            seen.append((x.status, x.json()["choices"][0]["finish_reason"] if x.status == 200 else None))
        x = post(w.b.url + "/v1/completions", text)
        seen.append((x.status, x.json()["choices"][0]["finish_reason"] if x.status == 200 else None))
        for name, body in (("token ids", ids), ("text", text)):
            x = ask(w.router.url, body)
            assert x.text and x.json()["choices"][0]["finish_reason"] == "length" and x.replica == w.a.name(), f"{name}: of {x.replica}: {x.body!r}"
            s = Stream(w.router.url, body)
            got = decode(s.rest())
            assert s.status == 200 and not got.errors and got.text == x.text and s.replica == w.a.name(), f"stream of {name}: status {s.status} of {s.replica}: {s.raw!r}"
        got = decode(open_.rest())
        assert not got.errors and got.usage["completion_tokens"] == LONG, f"the open stream was to end as a whole: {got.errors or got.usage}"
    except BaseException:
        w.b.stop(signal.SIGKILL)
        raise
    return f"by itself the draining engine answered {seen[-2:]}"


@check("SIGTERM, after the drain: while that engine tears down, every request is answered by the other one")
def teardown(w):
    # For some seconds its server still takes requests, says that it is healthy, and answers none.
    try:
        slow = 0.0
        for i in range(12):
            began = time.monotonic()
            try:
                a = ask(w.router.url, completion(fresh(42) + fresh(430 + i, 10)), timeout=45)
            except TimeoutError:
                raise AssertionError(f"request {i + 1} has no answer after 45 s, though {w.a.name()} is idle; the fleet: {[(r['name'], r['state']) for r in w.router.fleet()['replicas']]}") from None
            slow = max(slow, time.monotonic() - began)
    finally:
        w.b.stop(signal.SIGKILL)
        w.restart_later(w.b)
    return f"the slowest of 12 took {slow:.1f} s; the last by {a.replica}"


@check("an engine falls silent in the middle of a stream: the idle time-out ends it with one error event")
def silent(w):
    impatient = w.spawn_router([w.a], "proxy:\n  tokens: 10s\n  idle: 3s\n")
    try:
        s = streaming_on(w, (w.a, 51, LONG), router=impatient)
        w.a.send(signal.SIGSTOP)
        began = time.monotonic()
        message = one_error(s, "the stream on the engine that is stopped")
        took = time.monotonic() - began
        assert took >= 2.5, f"it ended after {took:.1f} s; idle is 3 s"
    finally:
        w.a.send(signal.SIGCONT)
        impatient.stop()
    w.gone(w.a, limit=20)
    return f"after {took:.1f} s, idle is 3 s: {message}"


@check("SIGTERM of an engine without --shutdown-timeout, in the middle of a stream: it ends, and says so once")
def hang(w):
    impatient = w.spawn_router([w.a], "proxy:\n  tokens: 10s\n  idle: 3s\n")
    try:
        s = streaming_on(w, (w.a, 52, LONG), router=impatient)
        w.a.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        raw = s.rest()
        took = time.monotonic() - began
        end = decode(raw)
        # vLLM falls silent, or ends the stream itself with finish_reason "abort", as it happens.
        aborted = [e for e in end.events if any(c.get("finish_reason") == "abort" for c in e.get("choices") or [])]
        assert end.done == 1 and len(end.errors) + len(aborted) == 1, f"{len(end.errors)} error events, {len(aborted)} aborts, {end.done} [DONE]; the end is {raw[-400:]!r}"
    finally:
        impatient.stop()
        w.a.stop(signal.SIGKILL)
        w.restart_later(w.a)
    return f"after {took:.1f} s: {end.errors[0]['error']['message'] if end.errors else 'the engine ended it with finish_reason abort'}"


@check("after both restarts the index is right again")
def after_term(w):
    w.join_restarts()
    w.router.quiet()
    return f"{spot(w, 560, 16)} requests, predicted == cached"


@check("SIGTERM drains the router: the open stream ends as a whole, new requests are refused, exit status 0")
def drain(w):
    s = Stream(w.router.url, completion(fresh(71), 500, stream_options={"include_usage": True}))
    s.read(5)
    w.router.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 10
    while True:
        assert time.monotonic() < end, "10 s after SIGTERM new requests are still answered"
        try:
            x = post(w.router.url + "/v1/completions", completion("x", 1), timeout=10)
            if x.status == 503:
                break
        except OSError:
            break
    got = decode(s.rest())
    assert not got.errors and got.done == 1 and got.usage["completion_tokens"] == 500, f"the open stream: {got.errors or got.usage}, {got.done} [DONE]"
    status = w.router.process.wait(30)
    assert status == 0, f"exit status {status}:\n{w.router.tail()}"
