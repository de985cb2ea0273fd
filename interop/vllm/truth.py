"""What the router predicts against what the engine reports: conversations, routing by
history and by load, eviction, reset."""

import pathlib
import random
import subprocess
import sys

from client import Conversation, Stream, ask, completion
from fleet import http
from report import check


def agree(a, where):
    """The heart of it all: the tokens that the router expected to be cached are those
    that the engine found cached, of a prompt of the same length. Equal, not close."""
    usage = a.json()["usage"]
    assert a.predicted is not None, f"{where}: the router had no tokens for this request, so it predicted nothing"
    assert a.length == usage["prompt_tokens"], f"{where}: the router counted {a.length} prompt tokens, {a.replica} {usage['prompt_tokens']}"
    assert a.predicted == a.cached, f"{where}: {a.predicted} of {a.length} tokens predicted, {a.cached} cached on {a.replica}"
    return a


@check("truth: 30 conversations of 6 turns, predicted == cached for every request")
def conversations(w):
    requests = hits = tokens = cached = 0
    for group in range(0, 30, 5):  # five at a time take turns, and share four system prompts
        convs = [Conversation(i, i % 4) for i in range(group, group + 5)]
        for turn in range(6):
            for c in convs:
                a = agree(c.turn(w.router.url), f"conversation {c.seed}, turn {turn + 1}")
                requests, hits, tokens, cached = requests + 1, hits + (a.cached > 0), tokens + a.length, cached + a.cached
    assert requests == 180 and hits > 120, f"only {hits} of {requests} requests found anything cached: this shows nothing"
    return f"{requests} requests without a pause between, {hits} with a hit, {cached} of {tokens} prompt tokens cached"


@check("truth: every receipt has what the engine served, and no drift")
def receipts(w):
    chance = random.Random(5)
    for e in w.engines:  # one after the other, all conversations may have gone to one engine: so each gets what it alone holds
        prompt = completion([chance.randrange(1000, 90000) for _ in range(400)])
        ask(e.url, prompt)
        w.router.quiet()
        a = agree(ask(w.router.url, prompt), f"a prompt that {e.name()} alone holds")
        assert a.replica == e.name(), f"a prompt of {e.name()} went to {a.replica}, and both are idle"
    w.router.quiet()
    for r in w.router.fleet()["replicas"]:
        d = r["ranks"][0]["drift"]
        assert d["requests_compared"] > 0, f"{r['name']} has no compared request: {d}"
        assert d["over_tokens"] == d["under_tokens"] == 0, f"{r['name']} drifts: {d}"
    newest = w.router.decisions(100)
    bad = [d for d in newest if d["outcome"] == "completed" and d["served_cached_tokens"] != d["overlap"]["gpu"]]
    assert not bad, f"{len(bad)} of {len(newest)} receipts differ; the first: {bad[0]}"
    return f"{len(newest)} receipts"


@check("tokens: chats and completions were tokenized by the router itself")
def local(w):
    sources = {d.get("token_source") for d in w.router.decisions(180)}
    assert sources <= {"local", "ids"} and "local" in sources, f"tokens came from {sources}"
    metrics = http("GET", w.router.admin + "/metrics")[2].decode()
    wrong = [l for l in metrics.splitlines() if l.startswith("kvasir_token_checks_total") and 'equal="no"' in l and not l.endswith(" 0")]
    assert not wrong, f"the router found its own tokens wrong: {wrong}"
    return f"sources {sorted(sources)}"


@check("tokens: 500 generated chats and completions, id by id against the engine's render")
def five_hundred(w):
    out = subprocess.run([sys.executable, pathlib.Path(__file__).with_name("tokens_check.py"), "--kvasir", w.binary, "--model", w.a.model, "--engine", w.a.url,
                          "--max-model-len", str(w.a.max_len), "--count", "500"], capture_output=True, text=True, timeout=600)
    assert out.returncode == 0, f"tokens_check.py: {out.stdout[-1500:]} {out.stderr[-500:]}"
    return out.stdout.strip().splitlines()[-1]


@check("routing: while it is idle, later turns go to the replica that holds the history")
def history(w):
    w.router.quiet()
    for seed in range(200, 206):
        c = Conversation(seed, seed)
        first = c.turn(w.router.url)
        for turn in range(2, 6):
            w.router.quiet(0.1)
            a = agree(c.turn(w.router.url), f"conversation {seed}, turn {turn}")
            assert a.replica == first.replica, f"conversation {seed}, turn {turn} went to {a.replica}; {first.replica} has its history and is idle"
            assert a.cached > 0, f"conversation {seed}, turn {turn}: nothing cached on {a.replica}"
    return "6 conversations of 5 turns"


@check("routing: with that replica loaded, the cost sends them elsewhere")
def elsewhere(w):
    # Dynamo's cost, in blocks: one long answer outweighs two blocks. In seconds, on so small a model, it doesn't, and the default rightly stays.
    router = w.spawn_router(w.engines, w.config + "policy: {name: dynamo}\n")
    chance = random.Random(7)
    busy, other = w.a, w.b
    short = [completion([chance.randrange(1000, 90000) for _ in range(70)]) for _ in range(4)]
    long = completion([chance.randrange(1000, 90000) for _ in range(400)], 600)
    for body in (*short, {**long, "max_tokens": 1}):  # what is sent to the engine itself, the router knows by its events
        ask(busy.url, body)
    router.quiet()
    idle = agree(ask(router.url, short[0]), "short prompt, idle fleet")
    assert idle.replica == busy.name() and idle.cached == 64, f"idle: it went to {idle.replica} with {idle.cached} cached; {busy.name()} holds 64 tokens of it"
    s = Stream(router.url, long)
    assert s.status == 200 and s.replica == busy.name(), f"the long request went to {s.replica}, its prompt is on {busy.name()}"
    s.read(3)
    for i, body in enumerate(short[1:], 2):
        a = ask(router.url, body)
        assert busy.running() >= 1, f"the long request ended too early to show anything (short prompt {i})"
        d = next(d for d in router.decisions(20) if d["prompt_tokens"] == 70)
        costs = {c["replica"]: (c["cost"], c["overlap"]["gpu"], c["requests"]) for c in d["candidates"]}
        assert a.replica == other.name(), f"short prompt {i} went to {a.replica}, which is loaded; cost, overlap, requests: {costs}"
        held = costs[busy.name()]
        assert held[1] == 64 and held[2] >= 1 and held[0] > costs[other.name()][0], f"the receipt does not say why: {costs}"
    s.close()
    w.idle()
    router.stop()
    return f"cost, overlap, open requests: {costs}"


@check("truth: eviction under pressure, predicted == cached after quiet")
def eviction(w):
    w.router.quiet()
    before = [o.removed for o in w.observers]
    chance, requests, lost = random.Random(3), 0, 0
    prompts = [[chance.randrange(1000, 90000) for _ in range(chance.randrange(40, 420))] for _ in range(36)]
    for turn in range(90):
        # Two of three are old prompts, most of them recent; some go on where the old one ended.
        old = prompts[int(chance.triangular(0, len(prompts), len(prompts)))]
        prompt = old if turn % 3 else old[: chance.randrange(len(old))] + [chance.randrange(1000, 90000) for _ in range(120)]
        w.router.quiet(0.1)
        a = agree(ask(w.router.url, completion(prompt, chance.choice((1, 8, 40)))), f"request {turn}")
        requests, lost = requests + 1, lost + (a.cached < (len(prompt) - 1) // 32 * 32)
        prompts.append(prompt)
    removed = [o.removed - b for o, b in zip(w.observers, before)]
    assert sum(removed) > 100, f"only {removed} blocks were evicted: this shows nothing"
    return f"{requests} requests, {lost} not wholly cached, {removed} blocks evicted"


@check("reset_prefix_cache empties that engine's part of the index")
def reset(w):
    chance, a, b = random.Random(11), w.a, w.b
    bodies = [completion([chance.randrange(1000, 90000) for _ in range(200)]) for _ in range(5)]
    for body in bodies:
        ask(a.url, body)  # on a only
    ask(b.url, bodies[4])
    w.router.quiet()
    assert agree(ask(w.router.url, bodies[0]), "before the reset").cached == 192
    w.router.quiet()
    w.reset(a)
    # vLLM tells of it only with the next request that it schedules; until then the router can't know.
    late = ask(w.router.url, bodies[1])
    assert late.replica == a.name() and (late.predicted, late.cached) == (192, 0), f"{late.replica} served the first request after the reset: {late.predicted} predicted, {late.cached} cached; want 192 and 0 of {a.name()}"
    w.router.quiet()
    assert w.observers[0].cleared, "no AllBlocksCleared was seen on the wire"
    for i in (0, 2, 3):
        x = agree(ask(w.router.url, bodies[i]), f"prompt {i} after the reset")
        assert x.cached == 0, f"prompt {i}: {x.cached} tokens cached on {x.replica}, which was reset"
        d = w.router.decisions(1)[0]
        held = {c["replica"]: c["overlap"]["gpu"] for c in d["candidates"]}
        assert held[a.name()] == 0, f"the index still has {held} of prompt {i}"
        w.router.quiet(0.1)
    x = agree(ask(w.router.url, bodies[4]), "a prompt that the other engine holds")
    assert x.replica == b.name() and x.cached == 192, f"the other engine's part is gone too: {x.cached} cached on {x.replica}"


def spot(w, seed, n=12):
    """Some conversations in quiet, for after a disturbance. Returns how many requests."""
    requests = 0
    for k in range(max(n // 4, 1)):
        c = Conversation(seed + k, seed + k % 2)
        for turn in range(4):
            w.router.quiet(0.1)
            agree(c.turn(w.router.url), f"conversation {c.seed}, turn {turn + 1}")
            requests += 1
    return requests
