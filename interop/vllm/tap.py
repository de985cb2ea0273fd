"""A tap on the wire: forwards connections to an engine and keeps what the engine wrote."""

import io
import http.client
import socket
import socketserver
import threading


class Tap:
    """It stands in for an engine: it has a url and a name, as Router wants them."""

    def __init__(self, port):
        tap = self
        self.answers, self.lock = [], threading.Lock()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with socket.create_connection(("127.0.0.1", port)) as up:
                    record = {"sent": bytearray(), "got": bytearray()}
                    with tap.lock:
                        tap.answers.append(record)
                    t = threading.Thread(target=tap.pump, args=(self.request, up, record["sent"]), daemon=True)
                    t.start()
                    tap.pump(up, self.request, record["got"])
                    t.join(10)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def name(self):
        return f"127.0.0.1:{self.port}"

    def pump(self, source, sink, record):
        try:
            while data := source.recv(65536):
                with self.lock:
                    record += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def bodies(self, path):
        """The bodies of all answers to POSTs of path, without HTTP's own framing. A kept
        connection carries several, one after the other. What isn't complete yet is left out."""
        found = []
        with self.lock:
            records = [(bytes(r["sent"]), bytes(r["got"])) for r in self.answers]
        for sent, got in records:
            reader = io.BufferedReader(io.BytesIO(got))
            for method, asked in _requests(sent):
                response = http.client.HTTPResponse(_Socket(reader), method=method)
                try:
                    response.begin()
                    body = response.read()
                except http.client.HTTPException:
                    break  # still on its way: what the router itself asks now and then
                if asked == path:
                    found.append(body)
        return found

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def _requests(sent):
    """Method and path of each request in the bytes of one connection."""
    while head := sent.partition(b"\r\n\r\n")[0]:
        first, *fields = head.decode("latin-1").split("\r\n")
        length = next((int(f.split(":")[1]) for f in fields if f.lower().startswith("content-length:")), 0)
        sent = sent[len(head) + 4 + length:]
        yield first.split()[:2]


class _Socket:
    """What http.client wants of a socket: a file that stays open between answers."""

    def __init__(self, reader):
        self.reader = reader

    def makefile(self, _):
        return _Unclosed(self.reader)


class _Unclosed:
    def __init__(self, reader):
        self.reader = reader

    def __getattr__(self, name):
        return getattr(self.reader, name)

    def close(self):
        pass

    def flush(self):
        pass
