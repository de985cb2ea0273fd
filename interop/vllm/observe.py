"""Listens to an engine's KV events with genuine libzmq, beside the router: what the
checks say of evictions and resets, they know from here."""

import collections
import threading

import msgspec
import zmq


class Observer(threading.Thread):
    """Counts the events of one engine by their type. It stays over restarts."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.counts, self.ended = port, collections.Counter(), threading.Event()

    def run(self):
        socket = zmq.Context.instance().socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.subscribe(b"")
        socket.connect(f"tcp://127.0.0.1:{self.port}")
        while not self.ended.is_set():
            if not socket.poll(100):
                continue
            _, events, *_ = msgspec.msgpack.decode(socket.recv_multipart()[-1])
            for event in events:
                self.counts[event["type"]] += max(len(event.get("block_hashes", ())), 1)
        socket.close()

    @property
    def removed(self):
        return self.counts["BlockRemoved"]

    @property
    def cleared(self):
        return self.counts["AllBlocksCleared"]
