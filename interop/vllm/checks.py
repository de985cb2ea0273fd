"""Kvasir in front of two real vLLM engines: every promise as a named check.

  checks.py KVASIR VENV MODEL RUN [--only WORD]

Starts the engines and the router, runs the checks in order, ends every process by
its id, and says 'N passed, N failed'. --only runs the checks whose name has WORD in
it, after those that the fleet's start needs; it is for people who look into one."""

import concurrent.futures
import json
import pathlib
import signal
import sys
import time

import faults
import fleet
import mixed
import truth
import wire
from client import WARM, ask
from observe import Observer
from report import Report

ORDER = [
    faults.down_at_start, faults.up_later,
    truth.conversations, truth.receipts, truth.local, truth.five_hundred, truth.history, truth.elsewhere, truth.eviction, truth.reset,
    *wire.PAIRS, wire.tapped, wire.curl, wire.client, wire.kinds, wire.refusals, wire.others,
    faults.leave_stream, faults.leave_whole,
    faults.silent, faults.kill, faults.after_kill, faults.graceful, faults.teardown, faults.hang, faults.after_term,
    mixed.concurrent_, mixed.reset, mixed.stop, mixed.kill,
    faults.drain,
]
START = {faults.down_at_start, faults.up_later}
LIMIT = 30 * 60  # s; far above what it needs, so that a hang can't hold up a pipeline for ever


class World:
    """Two engines, a and b, with small caches, and the router. b finishes open requests
    on SIGTERM, a does not (vLLM's default)."""

    def __init__(self, binary, venv, model, run):
        self.binary, self.run = binary, run
        self.a = fleet.Engine(venv, model, run, blocks=96, max_len=3000)
        self.b = fleet.Engine(venv, model, run, blocks=96, max_len=3000, extra=["--shutdown-timeout", "60"])
        self.engines = [self.a, self.b]
        # Tokens are made by the router, as where it can see the model's files; busy CI machines may be slow.
        self.config = f"tokens:\n  files:\n    dirs: {{tiny-qwen3: {model}}}\nproxy:\n  tokens: 10s\n"
        self.router = fleet.Router(binary, self.engines, run, self.config)
        self.observers, self.restarts, self.others = [], [], []
        self.pool = concurrent.futures.ThreadPoolExecutor(4)

    def start_engines(self):
        for e in self.engines:
            e.start()
        list(self.pool.map(lambda e: e.wait(), self.engines))
        # The first request with logprobs, and the first with a grammar, compile for a quarter of a minute.
        list(self.pool.map(lambda e: [ask(e.url, body, timeout=240) for body in WARM], self.engines))
        self.observers = [Observer(e.events) for e in self.engines]
        for o in self.observers:
            o.start()

    def spawn_router(self, engines, config=None):
        """A second router on the same engines; by default its tokens are its engines' own."""
        r = fleet.Router(self.binary, engines, self.run, config or "proxy:\n  tokens: 10s\n")
        self.others.append(r)
        r.start()
        r.wait_up()
        return r

    def restart(self, engine):
        """Starts an engine again that has ended, and waits for it and for the router to know it."""
        self.restart_later(engine)
        self.join_restarts()

    def restart_later(self, engine):
        engine.stop(signal.SIGKILL)  # if a check failed before it could
        engine.start()
        self.restarts.append(engine)

    def join_restarts(self):
        for e in self.restarts:
            e.wait()
        self.restarts = []
        self.router.wait_up()

    def reset(self, engine):
        """Empties an engine's prefix cache; it must be idle."""
        end = time.monotonic() + 20
        while not json.loads(fleet.http("POST", engine.url + "/reset_prefix_cache")[2])["success"]:
            assert time.monotonic() < end, "the engine does not reset its cache, it is never idle"
            time.sleep(0.1)

    def gone(self, *engines, limit=5):
        """Waits until nothing runs on the engines any more."""
        end = time.monotonic() + limit
        while any(e.running() for e in engines):
            assert time.monotonic() < end, f"{limit} s after the client left, {[e.running() for e in engines]} requests still run"
            time.sleep(0.02)

    def idle(self):
        self.gone(self.a, self.b)
        self.router.quiet()

    def close(self):
        for o in self.observers:
            o.ended.set()
        ended = [self.router, *self.others, *self.engines]
        for p in ended:
            p.try_send(signal.SIGCONT)
            p.try_send(signal.SIGTERM)
        for p in ended:
            p.stop(wait=3)
        self.pool.shutdown(cancel_futures=True)


class Stop(SystemExit):
    """Somebody wants it to end; no check may take it for its own failure."""
    stop = True


def stop(number, _):
    raise Stop(f"interop: ended by {signal.Signals(number).name}" + (f" after {LIMIT} s" if number == signal.SIGALRM else ""))


def main(binary, venv, model, run, only=""):
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(s, stop)
    signal.alarm(LIMIT)
    report = Report()

    def wanted(f):
        return any(word in f.check_name for word in only.split("|"))

    w = World(binary, venv, model, pathlib.Path(run))
    try:
        w.router.start()
        for f in ORDER:
            if not wanted(f) and f not in START:
                continue
            report.run(f, w)
            if f in START and report.failed:
                report.say("the fleet does not stand: the other checks can't be run, and have failed with it")
                report.failed += [g.check_name for g in ORDER if g not in START and wanted(g)]
                break
    finally:
        w.close()
    return report.end()


if __name__ == "__main__":
    args = sys.argv[1:]
    only = args.pop(args.index("--only") + 1) if "--only" in args else ""
    sys.exit(main(*[a for a in args if a != "--only"], only=only))
