"""Several hundred requests at once of every kind, with small caches, while engines are
reset, stopped, killed and started again. What is sent in quiet between must agree."""

import collections
import concurrent.futures
import http.client
import random
import signal
import threading
import time

from client import Conversation, Stream, ask, chat, completion, decode
from report import check
from truth import agree, spot


class Traffic:
    """Requests from several threads at a time; counts what became of them."""

    def __init__(self, w, seed, threads=6):
        self.w, self.seed, self.threads = w, seed, threads
        self.outcomes, self.failures, self.lock = collections.Counter(), [], threading.Lock()
        self.numbers = iter(range(10**9))

    def one(self, i):
        """Request i: its kind, prompt and length follow from its number."""
        chance = random.Random(self.seed * 100_003 + i)
        url, kind = self.w.router.url, chance.choice(("chat", "stream", "ids", "n2", "turns", "leave"))
        prefix = [random.Random(i % 5).randrange(1000, 90000)] * 3 + [1000 + (i % 5) * 97 + k for k in range(chance.randrange(30, 260))]
        if kind == "chat":
            c = Conversation(9000 + i, i % 4, chance.randrange(20, 150))
            ask(url, chat(c.say(), chance.randrange(1, 24)))
        elif kind == "turns":
            c = Conversation(9000 + i, i % 4, 60)
            c.turn(url, 8), c.turn(url, 8)
        elif kind == "ids":
            ask(url, completion(prefix, chance.randrange(1, 24)))
        elif kind == "n2":
            ask(url, completion(prefix, 8, n=2, temperature=1))
        else:
            s = Stream(url, completion(prefix, 32, stream_options={"include_usage": True}))
            assert s.status == 200, f"status {s.status}: {s.response.read()[:300]!r}"
            if kind == "leave":
                s.read(chance.randrange(1, 6))
                s.close()
            else:
                end = decode(s.rest())
                if end.errors:
                    return "error event"
                assert end.usage["completion_tokens"] == 32 and end.done == 1, f"a stream that is not whole: {end.usage}, {end.done} [DONE]"
        return kind

    def run(self, n, during=()):
        """Sends n requests; during has (k, f): f() is called once k of them have been begun."""
        def worker():
            while True:
                with self.lock:
                    i = next(self.numbers)
                if i >= self.last:
                    return
                for k, f in during:
                    if i == self.last - n + k:
                        f()
                try:
                    what = self.one(i)
                except (AssertionError, OSError, http.client.HTTPException) as e:
                    what = "failed"
                    with self.lock:
                        self.failures.append(f"request {i}: {type(e).__name__}: {e}")
                with self.lock:
                    self.outcomes[what] += 1
        self.last = sum(self.outcomes.values()) + n
        self.numbers = iter(range(self.last - n, 10**9))
        with concurrent.futures.ThreadPoolExecutor(self.threads) as pool:
            for f in [pool.submit(worker) for _ in range(self.threads)]:
                f.result()


def settle(w, where, seed):
    """After quiet, predicted == cached, for prompts that the traffic has left and new ones."""
    w.router.quiet(0.5)
    for i in range(8):
        prefix = [random.Random(i % 5).randrange(1000, 90000)] * 3 + [1000 + (i % 5) * 97 + k for k in range(30 + 28 * i)]
        agree(ask(w.router.url, completion(prefix, 4)), f"{where}, prompt {i}")
        w.router.quiet(0.1)
    return 8 + spot(w, seed, 8)


@check("mixed: concurrent requests of every kind; in quiet predicted == cached")
def concurrent_(w):
    w.traffic = t = Traffic(w, 1)
    t.run(120)
    assert not t.failures and not t.outcomes["error event"], f"{len(t.failures)} failed, {t.outcomes['error event']} error events; the first: {t.failures[:1]}"
    return f"{dict(t.outcomes)}; then {settle(w, 'after the traffic', 7000)} requests in quiet agree"


@check("mixed: reset_prefix_cache of one engine between: no request fails; after the first, predicted == cached")
def reset(w):
    t, cleared = w.traffic, w.observers[0].cleared
    w.reset(w.a)
    t.run(60)  # its first request on that engine is the exempt one
    assert w.observers[0].cleared > cleared, "no AllBlocksCleared was seen on the wire"
    assert not t.failures, f"{len(t.failures)} failed; the first: {t.failures[0]}"
    return f"{settle(w, 'after the reset', 7100)} requests in quiet agree"


@check("mixed: SIGSTOP of 10 s: every request is answered; in quiet predicted == cached")
def stop(w):
    t = w.traffic

    def halt():
        w.b.send(signal.SIGSTOP)
        timer = threading.Timer(10, w.b.send, (signal.SIGCONT,))
        timer.daemon = True
        timer.start()
    began = time.monotonic()
    try:
        t.run(100, during=[(20, halt)])
    finally:
        w.b.send(signal.SIGCONT)
    assert not t.failures and not t.outcomes["error event"], f"{len(t.failures)} failed, {t.outcomes['error event']} error events; the first: {t.failures[:1]}"
    w.router.wait_up()
    return f"100 requests in {time.monotonic() - began:.0f} s; then {settle(w, 'after SIGSTOP', 7200)} requests in quiet agree"


@check("mixed: kill -9: only streams that had begun on that engine end, with one error event each")
def kill(w):
    t = w.traffic
    t.run(100, during=[(40, lambda: w.a.stop(signal.SIGKILL))])
    broken = t.outcomes["error event"]
    assert not t.failures, f"{len(t.failures)} failed; the first: {t.failures[0]}"
    assert broken <= t.threads, f"{broken} streams ended with an error, but only {t.threads} requests were open"
    in_quiet = settle(w, "one engine dead", 7300)
    w.restart(w.a)
    t.run(40)
    assert not t.failures, f"after the restart {len(t.failures)} failed; the first: {t.failures[0]}"
    return f"{broken} streams ended with an error event; {in_quiet} requests in quiet agree with one engine dead, {settle(w, 'after the restart', 7400)} after its restart"
