"""Starts and stops real vLLM engines and kvasir serve on loopback. Every process
is its own group and is ended by its id."""

import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request


def free_port():
    """A port below the range that the system gives to outgoing connections: it must
    still be free when an engine that was killed comes back to it."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def http(method, url, body=None, headers=None, timeout=60):
    """Returns (status, headers, bytes); an HTTP error is an answer too."""
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as r:
            return r.status, r.headers, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def get_json(url):
    return json.loads(http("GET", url, timeout=10)[2])


class Process:
    def __init__(self, log):
        self.log, self.process = pathlib.Path(log), None

    def spawn(self, args, env=None, cwd=None):
        out = open(self.log, "ab")
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=cwd, start_new_session=True)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        os.killpg(self.process.pid, number)

    def try_send(self, number):
        """Sends a signal to the group, if there still is one."""
        try:
            if self.process is not None:
                self.send(number)
        except ProcessLookupError:
            pass

    def stop(self, number=signal.SIGTERM, wait=20):
        if self.process is None:
            return
        try:
            self.send(number)
            self.process.wait(wait)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        try:
            self.send(signal.SIGKILL)  # what is left of the group
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process = None

    def tail(self, lines=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Engine(Process):
    """One vLLM. Its ports stay the same over restarts."""

    def __init__(self, venv, model, run, blocks=48, block_size=32, max_len=1024, extra=(), prefix=()):
        self.port, self.events, self.replay = free_port(), free_port(), free_port()
        super().__init__(run / f"engine-{self.port}.log")
        self.venv, self.model, self.run = pathlib.Path(venv), pathlib.Path(model), run
        self.blocks, self.block_size, self.max_len, self.extra = blocks, block_size, max_len, list(extra)
        self.prefix = list(prefix)  # of the command, such as taskset
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        ipc = self.run / f"i{self.port}"
        ipc.mkdir(exist_ok=True)
        env = dict(os.environ, VLLM_SERVER_DEV_MODE="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1",
                   VLLM_HOST_IP="127.0.0.1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",
                   VLLM_CACHE_ROOT=str(self.run / "cache"), HF_HOME=str(self.run / "hf"))
        if len(str(ipc)) < 50:
            env["VLLM_RPC_BASE_PATH"] = str(ipc)
        # vLLM binds its PUB socket only where the endpoint has "*" or "::" in it; the mapped form binds loopback alone.
        events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://[::ffff:127.0.0.1]:{self.events}",
                  "replay_endpoint": f"tcp://127.0.0.1:{self.replay}", "topic": "kv-events"}
        self.spawn([
            *self.prefix, self.venv / "bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", self.model.name, "--served-model-name", "tiny-qwen3",
            "--load-format", "dummy", "--host", "127.0.0.1", "--port", str(self.port), "--dtype", "bfloat16", "--enforce-eager",
            "--max-model-len", str(self.max_len), "--block-size", str(self.block_size), "--num-gpu-blocks-override", str(self.blocks),
            "--max-num-seqs", "8", "--enable-prefix-caching", "--enable-prompt-tokens-details", "--enable-scale-out",
            "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--kv-events-config", json.dumps(events), *self.extra,
        ], env=env, cwd=self.model.parent)

    def healthy(self):
        try:
            return http("GET", self.url + "/health", timeout=2)[0] == 200
        except OSError:
            return False

    def wait(self, limit=420):
        end = time.monotonic() + limit
        while not self.healthy():
            if not self.alive():
                raise SystemExit(f"interop: the engine on port {self.port} died at start:\n{self.tail()}")
            if time.monotonic() > end:
                raise SystemExit(f"interop: the engine on port {self.port} is not healthy after {limit} s:\n{self.tail()}")
            time.sleep(0.2)

    def metric(self, name):
        """The sum of a vLLM metric over its labels."""
        text = http("GET", self.url + "/metrics")[2].decode()
        return sum(float(v) for v in re.findall(rf"^vllm:{name}(?:\{{.*\}})? (\S+)$", text, re.M))

    def running(self):
        return self.metric("num_requests_running")

    def name(self):
        return f"127.0.0.1:{self.port}"


class Router(Process):
    """One kvasir serve; config is the text of its file, beside the flags."""

    def __init__(self, binary, engines, run, config=""):
        self.port, self.admin_port = free_port(), free_port()
        super().__init__(run / f"kvasir-{self.port}.log")
        self.binary, self.engines, self.extra = binary, engines, []
        if config:
            file = run / f"kvasir-{self.port}.yaml"
            file.write_text(config)
            self.extra = ["--config", str(file)]
        self.url, self.admin = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.admin_port}"

    def start(self):
        args = [self.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin_port}"]
        for e in self.engines:
            args += ["--engine", e.url]
        self.spawn(args + self.extra)
        self.wait_for(lambda f: len(f["replicas"]) == len(self.engines), what="the admin listener")

    def wait_up(self, *engines, limit=60):
        """Waits until the engines (all, if none is named) are up and their streams exact."""
        names = {e.name() for e in engines or self.engines}
        self.wait_for(lambda f: all(r["state"] == "up" and all(k["trust"] == "exact" for k in r["ranks"]) for r in f["replicas"] if r["name"] in names),
                      limit, f"{', '.join(sorted(names))} to be up and exact")

    def fleet(self):
        return get_json(self.admin + "/v1/kvasir/fleet")

    def wait_for(self, condition, limit=60, what="the fleet to be ready"):
        """Polls the fleet until condition(fleet) holds."""
        end, seen = time.monotonic() + limit, None
        while time.monotonic() < end:
            if not self.alive():
                raise AssertionError(f"kvasir died:\n{self.tail()}")
            try:
                seen = self.fleet()
                if condition(seen):
                    return seen
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"waited {limit} s for {what}; the fleet is {json.dumps(seen, indent=1)}\n{self.tail()}")

    def quiet(self, window=0.25, limit=30):
        """Waits until no request is open and no event has come for window seconds."""
        def state():
            ranks = [k for r in self.fleet()["replicas"] for k in r["ranks"]]
            return [(k.get("events") or {}).get("batches") for k in ranks], sum(k["requests"] for k in ranks)
        (last, open_), since = state(), time.monotonic()
        end = since + limit
        while open_ or time.monotonic() - since < window:
            assert time.monotonic() < end, f"not quiet after {limit} s: {open_} requests open, batches {last}"
            time.sleep(0.03)
            now, open_ = state()
            if now != last:
                last, since = now, time.monotonic()

    def decisions(self, n):
        """The latest receipts, newest first."""
        return get_json(f"{self.admin}/v1/kvasir/decisions?limit={n}")["decisions"]

    def replica(self, engine):
        return next(r for r in self.fleet()["replicas"] if r["name"] == engine.name())
