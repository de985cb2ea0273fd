"""A genuine libzmq peer, driven by lines on stdin and answering by lines on stdout.

    peer.py ROLE bind|connect ENDPOINT [key=value ...]

ROLE is pub, sub, router, dealer or req. Keys: identity, topic, hwm, ivl, timeout, ttl
(heartbeats, ms). The first line out is "at ENDPOINT". Connection events of the
socket monitor go out as "event NAME". Commands:

    hello TEXT        pub: publish [topic, "hello", TEXT]
    burst N SIZES     pub: N messages [topic, seq u64 BE, payload, crc32 u32 BE], sizes taken in turn from a,b,c
    count N           sub: receive until N numbered messages came; check order and crc; answer "counted N bad=B"
    take              sub: receive one message, answer "took" and its frames in hex (long ones: their length)
    ask N             dealer, req: send a request for N batches, receive all, answer "replied N bad=B"
    quit
A router serves requests [id, "", n u64 BE] by itself, like vLLM's replay: n batches, then the end marker.
"""
import sys
import threading
import zlib

import zmq
from zmq.utils.monitor import recv_monitor_message

role, mode, endpoint = sys.argv[1:4]
opts = dict(a.split("=", 1) for a in sys.argv[4:])
ctx = zmq.Context()
sock = ctx.socket(getattr(zmq, role.upper()))
sock.setsockopt(zmq.LINGER, 0)
sock.setsockopt(zmq.IPV6, 1 if "[" in endpoint else 0)
for key, option in {"hwm": "SNDHWM", "rcvhwm": "RCVHWM", "ivl": "HEARTBEAT_IVL", "timeout": "HEARTBEAT_TIMEOUT", "ttl": "HEARTBEAT_TTL"}.items():
    if key in opts:
        sock.setsockopt(getattr(zmq, option), int(opts[key]))
if "identity" in opts:
    sock.setsockopt(zmq.IDENTITY, opts["identity"].encode())
topic = opts.get("topic", "kv-events").encode()
if role == "sub":
    sock.setsockopt(zmq.SUBSCRIBE, topic)

out_lock = threading.Lock()


def say(*words):
    with out_lock:
        print(*words, flush=True)


names = {int(e): e.name for e in zmq.Event}
monitor = sock.get_monitor_socket()


def watch():
    while True:
        try:
            e = recv_monitor_message(monitor)
        except zmq.ZMQError:
            return
        say("event", names.get(int(e["event"]), e["event"]))


threading.Thread(target=watch, daemon=True).start()
getattr(sock, mode)(endpoint)
say("at", sock.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())


def numbered(seq, size):
    body = bytes([seq & 0xFF]) * size
    return [seq.to_bytes(8, "big"), body, zlib.crc32(body).to_bytes(4, "big")]


def good(seq, frames):
    n, body, crc = frames[-3:]
    return int.from_bytes(n, "big") == seq and zlib.crc32(body) == int.from_bytes(crc, "big")


def serve_replays():
    while True:
        ident, delim, n = sock.recv_multipart()
        for i in range(int.from_bytes(n, "big")):
            sock.send_multipart([ident, delim, topic] + numbered(i, i % 5000))
        sock.send_multipart([ident, delim, b"", b"\xff" * 8, b""])


if role == "router":
    threading.Thread(target=serve_replays, daemon=True).start()

for line in sys.stdin:
    cmd, *args = line.split()
    if cmd == "quit":
        break
    if cmd == "hello":
        sock.send_multipart([topic, b"hello", args[0].encode()])
    elif cmd == "burst":
        sizes = [int(s) for s in args[1].split(",")]
        for i in range(int(args[0])):
            sock.send_multipart([topic] + numbered(i, sizes[i % len(sizes)]))
        say("sent", args[0])
    elif cmd == "take":
        say("took", *(f"{len(f)}*" if len(f) > 100 else f.hex() or "-" for f in sock.recv_multipart()))
    elif cmd == "count":
        n, seq, bad = int(args[0]), 0, 0
        while seq < n:
            frames = sock.recv_multipart()
            if len(frames) < 4:
                continue
            bad += not good(seq, frames)
            seq += 1
        say("counted", seq, f"bad={bad}")
    elif cmd == "ask":
        n, seq, bad = int(args[0]), 0, 0
        sock.send_multipart([b""] * (role == "dealer") + [n.to_bytes(8, "big")])
        while True:
            frames = sock.recv_multipart()
            if b"\xff" * 8 in frames:
                break
            bad += not good(seq, frames)
            seq += 1
            if role == "req":
                break
        say("replied", seq, f"bad={bad}")
