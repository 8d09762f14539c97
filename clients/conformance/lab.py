#!/usr/bin/env python3
"""What the tests of all clients talk to: a scripted server that plays vectors, and real brokers that are killed and restarted.

    lab.py [--dwell PROGRAM] COMMAND [ARGUMENT …]

Starts a server for control on loopback, runs the command with its address in LAB, and ends with the command's exit code.
Everything that it started ends with it. Requests to the control server are POST with JSON:

    /vectors                         all vectors: [{"file", "name"}]
    /vector  {"file", "name"}        a server that plays this vector: {"server", "token_file", "vector"}
    /mark    {"name", "by"}          counts something that a client did
    /wait    {"when": {NAME: N}}     answers once the counters have at least these values
    /vector/end                      {"failures": […]}
    /story   {"name", "messages"}    real brokers with faults: {"server", "token_file", "ca_file"?}
    /story/end                       {"faults": N, "failures": […]}
"""

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from story import Story
from vector import VECTORS, Vector


class Lab(ThreadingHTTPServer):
    daemon_threads = True
    # Above the number of handlers of a test that wait at the same time.
    request_queue_size = 256
    current = None
    dwell = ""

    def vectors(self, _asked):
        files = sorted(VECTORS.glob("*.json"))
        return [{"file": file.name, "name": vector["name"]} for file in files for vector in json.loads(file.read_text())]

    def vector(self, asked):
        self.current = Vector(asked["file"], asked["name"])
        return {"server": self.current.server, "token_file": self.current.token_file, "vector": self.current.vector}

    def story(self, asked):
        self.current = Story(self.dwell, asked["name"], asked["messages"])
        files = {"ca_file": self.current.ca_file} if self.current.ca_file else {}
        return {"server": self.current.server, "token_file": self.current.token_file, **files}

    def mark(self, asked):
        self.current.counters.add(asked["name"], asked.get("by", 1))
        return {}

    def wait(self, asked):
        return {"is_met": self.current.counters.wait(asked["when"])}

    def end(self, _asked):
        # Still the current one while it ends, since it waits for the marks of handlers that outlive their worker.
        ended = self.current.end()
        self.current = None
        return ended


class Control(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        asked = json.loads(self.rfile.read(length) or b"{}")
        method = {"/vector/end": "end", "/story/end": "end"}.get(self.path, self.path[1:])
        try:
            status, answer = 200, getattr(self.server, method)(asked)
        except Exception as error:
            print(f"lab: {self.path} {asked}: {error!r}", file=sys.stderr, flush=True)
            status, answer = 500, {"error": repr(error)}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def main():
    args = sys.argv[1:]
    lab = Lab(("127.0.0.1", 0), Control)
    lab.dwell = os.environ.get("DWELL_BIN", "target/debug/dwell")
    if args[:1] == ["--dwell"]:
        lab.dwell, args = args[1], args[2:]
    threading.Thread(target=lab.serve_forever, daemon=True).start()
    child = subprocess.Popen(args, env={**os.environ, "LAB": f"http://127.0.0.1:{lab.server_port}"})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: child.send_signal(number))
    try:
        code = child.wait()
    finally:
        if lab.current:
            lab.current.close()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
