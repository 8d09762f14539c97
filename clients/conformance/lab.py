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
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

VECTORS = Path(__file__).parent / "vectors"
ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
# Longer than any wait of a test that passes.
PATIENCE = 30


class Counters:
    """What has happened how often, to be waited for."""

    def __init__(self):
        self.changed = threading.Condition()
        self.counts = {}
        self.is_over = False

    def add(self, name, by=1):
        with self.changed:
            self.counts[name] = self.counts.get(name, 0) + by
            self.changed.notify_all()

    def has(self, when):
        return all(self.counts.get(name, 0) >= count for name, count in when.items())

    def wait(self, when, patience=PATIENCE):
        with self.changed:
            return self.changed.wait_for(lambda: self.is_over or self.has(when), patience) and self.has(when)

    def settle(self):
        """True when each handler that has begun said how it ended. A worker does not wait for those that it cancelled."""
        with self.changed:
            ended = lambda: self.counts.get("handled", 0) + self.counts.get("lost", 0)
            return self.changed.wait_for(lambda: ended() >= self.counts.get("begun", 0), PATIENCE)

    def end(self):
        with self.changed:
            self.is_over = True
            self.changed.notify_all()


# Vectors


def matches(expected, actual, names):
    """What differs between a value and its template, or None. `<x>` binds any text to the name x, `<ulid x>` a ULID."""
    if isinstance(expected, str) and (name := re.fullmatch(r"<(ulid )?(\w+)>", expected)):
        if name[2] in names:
            return None if names[name[2]] == actual else f"{actual!r} is not {names[name[2]]!r} as before"
        if name[1] and not (isinstance(actual, str) and ULID.fullmatch(actual)):
            return f"{actual!r} is not a ULID"
        names[name[2]] = actual
        return None
    if isinstance(expected, dict) and isinstance(actual, dict):
        if expected.keys() != actual.keys():
            return f"has {sorted(actual)}, expected {sorted(expected)}"
        return next(filter(None, (matches(expected[k], actual[k], names) for k in expected)), None)
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        # Receipts may be in any order.
        key = lambda item: item.get("receipt", "") if isinstance(item, dict) else str(item)
        pairs = zip(sorted(expected, key=key), sorted(actual, key=key))
        return next(filter(None, (matches(e, a, names) for e, a in pairs)), None)
    return None if expected == actual else f"{actual!r}, expected {expected!r}"


def filled(template, names):
    """A template with the texts that are bound to its names."""
    if isinstance(template, str) and (name := re.fullmatch(r"<(\w+)>", template)):
        return names.get(name[1], template)
    if isinstance(template, dict):
        return {k: filled(v, names) for k, v in template.items()}
    return [filled(item, names) for item in template] if isinstance(template, list) else template


UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def in_milliseconds(body):
    """A body in which each duration that was given as text has its second name."""
    if isinstance(body, list):
        return [in_milliseconds(item) for item in body]
    if not isinstance(body, dict):
        return body
    result = {}
    for name, value in body.items():
        if name in ("delay", "ttl", "wait", "visibility_timeout", "dedup_for"):
            parts = re.findall(r"([\d.]+)(ms|[smhd])", value)
            result[name + "_ms"] = round(sum(float(number) * UNITS[unit] for number, unit in parts))
        else:
            result[name] = value if name in ("payload_json", "meta") else in_milliseconds(value)
    return result


def delivery(short):
    """A delivery of which the vector says only what it is about."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    return {"receipt": f"r-{short['id']}", "attempt": 1, "partition": 0, "pushed_at": now, "due_at": now, "deadline": now,
            "lateness_ms": 1, "meta": {}, "payload": "{}", **short}


class Vector:
    """A server that expects the exchanges of a vector."""

    def __init__(self, file, name):
        self.vector = next(v for v in json.loads((VECTORS / file).read_text()) if v["name"] == name)
        self.left = {}
        for exchange in self.vector.get("exchanges", []):
            self.left.setdefault(exchange["on"], []).append(exchange)
        self.counters, self.names, self.failures = Counters(), {}, []
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.directory = tempfile.mkdtemp(prefix="dwell-vector-")
        self.token_file = os.path.join(self.directory, "token")
        self.write_token(self.vector.get("token", ""))
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.server = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def write_token(self, token):
        with open(self.token_file + ".new", "w") as file:
            file.write(token + "\n")
        os.rename(self.token_file + ".new", self.token_file)

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        polls = set()
        with connection, connection.makefile("rb") as reader:
            while (request := self.read(reader)) is not None:
                # Behind a load balancer the polls of a worker have to stay with one broker.
                polls.add(self.name_of(*request[:2]) == "reserve")
                if len(polls) > 1:
                    self.failures.append("a poll shares its connection with other requests")
                try:
                    if not self.answer(connection, *request):
                        return
                except OSError:
                    return

    @staticmethod
    def read(reader):
        try:
            line = reader.readline().decode()
            headers = {}
            while (header := reader.readline().decode().strip()):
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            if headers.get("transfer-encoding") == "chunked":
                body = b""
                while (size := int(reader.readline(), 16)):
                    body += reader.read(size)
                    reader.readline()
                reader.readline()
            else:
                body = reader.read(int(headers.get("content-length", 0)))
            return (*line.split()[:2], headers, in_milliseconds(json.loads(body)) if body else None) if line else None
        except (OSError, ValueError):
            return None

    def answer(self, connection, method, target, headers, body):
        url = urlsplit(target)
        what = self.name_of(method, url.path)
        with self.lock:
            left = self.left.get(what)
            exchange = left[0] if left else None
            if exchange:
                if not exchange.get("any"):
                    left.pop(0)
                self.check(what, exchange, method, url, headers, body)
            elif what == "reserve" and self.vector.get("worker"):
                exchange = {"answer": "hang"}
            else:
                self.failures.append(f"unexpected {method} {target} {json.dumps(body)}")
                exchange = {"answer": {"status": 500}}
        answer = exchange["answer"]
        self.counters.add(f"{what} asked")
        if "after" in exchange and not self.counters.wait(exchange["after"]):
            self.failures.append(f"{what}: waited for {exchange['after']}, but there was only {self.counters.counts}")
        if "token" in exchange:
            self.write_token(exchange["token"])
        if answer == "hang":
            connection.settimeout(PATIENCE)
            try:
                # The client ends the request by ending what it sends.
                rest = connection.recv(1)
                if rest:
                    self.failures.append(f"{what}: more was sent before the answer")
            except OSError:
                pass
            self.counters.add(f"{what} ended")
            if "then" not in exchange:
                return False
            answer = exchange["then"]
        if answer == "close":
            self.counters.add(what)
            return False
        data = json.dumps(self.body_of(what, answer, body)).encode()
        status = answer.get("status", 200)
        lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in answer.get("headers", {}).items()]
        cut = len(data) // 2 if answer.get("cut") else len(data)
        # Counted first: a client may act on the answer before this thread continues.
        self.counters.add(what)
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + data[:cut])
        return cut == len(data)

    def body_of(self, what, answer, asked):
        if "deliveries" in answer:
            return {"deliveries": [delivery(short) for short in answer["deliveries"]]}
        if "verdicts" in answer:
            receipts = [r if isinstance(r, str) else r["receipt"] for r in asked["receipts"]]
            said = answer["verdicts"]
            with self.lock:
                results = [{"receipt": receipt, "status": self.verdict(said, receipt)} for receipt in receipts]
            self.counters.add(f"{what} receipts", sum(r["status"] != "unreachable" for r in results))
            return {"failed": 0, "results": results, **answer.get("body", {})}
        if answer.get("stores_all"):
            results = [{"id": m["id"], "partition": 0, "due_at": "2026-01-02T03:04:05.678Z", "status": "stored"}
                       for m in asked["messages"]]
            return {"results": results}
        return filled(answer.get("body", {}), self.names)

    @staticmethod
    def verdict(said, receipt):
        """The same for all receipts, or one for each; of several the first that was not used."""
        if isinstance(said, str):
            return said
        verdicts = said.get(receipt, said["*"])
        return verdicts if isinstance(verdicts, str) else verdicts.pop(0)

    def check(self, what, exchange, method, url, headers, body):
        expected = exchange.get("expect", {})
        wrong = []
        if not self.counters.has(exchange.get("needs", {})):
            wrong.append(f"came before {exchange['needs']}")
        if "method" in expected and method != expected["method"]:
            wrong.append(f"method {method}")
        if "path" in expected and url.path != expected["path"]:
            wrong.append(f"path {url.path}, expected {expected['path']}")
        if "query" in expected and dict(parse_qsl(url.query)) != expected["query"]:
            wrong.append(f"query {url.query}")
        for name, value in expected.get("headers", {}).items():
            if value is None and name.lower() in headers:
                wrong.append(f"header {name} is there")
            elif value is not None and (why := matches(value, headers.get(name.lower()), self.names)):
                wrong.append(f"header {name}: {why}")
        if "body" in expected and (why := matches(expected["body"], body, self.names)):
            wrong.append(f"body {why}")
        if "count" in expected:
            count = len(body.get("receipts", body.get("messages", [])))
            if count != expected["count"]:
                wrong.append(f"{count} entries, expected {expected['count']}")
        self.failures += [f"{what}: {text}" for text in wrong]

    @staticmethod
    def name_of(method, path):
        last = unquote(path).rsplit("/", 1)[-1]
        if method == "POST":
            return {"messages": "push", "batch": "push_many"}.get(last, last)
        return {"PATCH": "reschedule", "DELETE": "cancel", "PUT": "create_topic"}.get(method, "get")

    def end(self):
        elapsed = round((time.monotonic() - self.began) * 1000)
        for what, left in self.left.items():
            missing = [exchange for exchange in left if not (exchange.get("any") or exchange.get("optional"))]
            if missing:
                self.failures.append(f"{len(missing)} requests are missing: {what}")
        if not self.counters.settle():
            self.failures.append(f"handlers that began and did not end: {self.counters.counts}")
        low, high = self.vector.get("min_elapsed_ms", 0), self.vector.get("max_elapsed_ms", PATIENCE * 1000)
        if not low <= elapsed <= high:
            self.failures.append(f"took {elapsed} ms, expected {low} to {high}")
        self.close()
        return {"failures": self.failures}

    def close(self):
        self.counters.end()
        self.listener.close()
        shutil.rmtree(self.directory, ignore_errors=True)


# Stories


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def until(what, condition, patience=PATIENCE):
    give_up = time.monotonic() + patience
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(what)
        threading.Event().wait(0.02)


class Process:
    """A server that can be killed and started again on the same address and data."""

    def __init__(self, args, is_ready, log):
        self.args, self.is_ready, self.log = args, is_ready, log
        self.child = None

    def start(self):
        with open(self.log, "ab") as log:
            env = {name: value for name, value in os.environ.items() if not name.startswith("DWELL_")}
            # What a killed broker owned is handed out by another one after this time.
            env["DWELL_LEASE_TTL"] = "2s"
            self.child = subprocess.Popen(self.args, stdout=log, stderr=log, env=env)
        until(f"{self.args[0]} is ready: see {self.log}", lambda: self.is_ready() or self.child.poll() is not None)
        if self.child.poll() is not None:
            raise RuntimeError(f"{self.args} ended: {Path(self.log).read_text()[-2000:]}")

    def end(self, number):
        if self.child and self.child.poll() is None:
            self.child.send_signal(number)
            if number == signal.SIGTERM:
                try:
                    self.child.wait(30)
                except subprocess.TimeoutExpired:
                    self.child.kill()
            self.child.wait()


def answers(address, request=b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n", good=b" 200 ", context=None):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    try:
        with socket.socket(family) as connection:
            connection.settimeout(2)
            connection.connect(address)
            if context:
                connection = context.wrap_socket(connection, server_hostname="localhost")
            with connection:
                connection.sendall(request)
                return good in connection.recv(1000)
    except OSError:
        return False


class Balancer:
    """One address for several brokers: each connection goes to the next one that accepts it."""

    def __init__(self, ports):
        self.ports, self.turn = ports, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.server = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client):
        for _ in self.ports:
            self.turn += 1
            try:
                broker = socket.create_connection(("127.0.0.1", self.ports[self.turn % len(self.ports)]))
            except OSError:
                continue
            threading.Thread(target=self.copy, args=(client, broker), daemon=True).start()
            self.copy(broker, client)
            return
        client.close()

    @staticmethod
    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class Story:
    """Real brokers, and a fault whenever the client has handled another part of the messages."""

    def __init__(self, dwell, name, messages):
        self.dwell, self.name, self.messages = dwell, name, messages
        self.directory = tempfile.mkdtemp(prefix="dwell-story-")
        self.counters, self.failures, self.faults = Counters(), [], 0
        self.brokers, self.redis, self.balancer = [], None, None
        Path(self.directory, "token").write_text("0123456789abcdef0123456789abcdef\n")
        self.token_file = os.path.join(self.directory, "token")
        self.thread = None
        # The certificate that verifies the broker.
        self.ca_file = None
        try:
            self.server = getattr(self, f"begin_{name}")()
        except BaseException:
            self.close()
            raise
        faults = getattr(self, f"fault_{name}", None)
        if faults:
            self.thread = threading.Thread(target=self.run, args=(faults,), daemon=True)
            self.thread.start()

    def run(self, fault):
        for part in range(1, 5):
            if not self.counters.wait({"handled": self.messages * part // 5}, 3600):
                return
            try:
                fault(part)
                self.faults += 1
            except Exception as error:
                self.failures.append(f"fault {part}: {error!r}")

    def broker(self, name, *flags, unix=False, tokens=False, context=None):
        port = free_port()
        address = os.path.join(self.directory, f"{name}.sock") if unix else ("127.0.0.1", port)
        listen = f"unix:{address}" if unix else f"127.0.0.1:{port}"
        args = [self.dwell, "serve", "--listen", listen, "--data-dir", os.path.join(self.directory, name), *flags]
        if tokens:
            config = os.path.join(self.directory, f"{name}.toml")
            Path(config).write_text(f'[[auth.token]]\nname = "shop"\nfile = "{self.token_file}"\nscopes = ["admin"]\n')
            args += ["--config", config]
        process = Process(args, lambda: answers(address, context=context), os.path.join(self.directory, f"{name}.log"))
        process.start()
        self.brokers.append(process)
        return (f"unix:{address}" if unix else f"http{'s' if context else ''}://127.0.0.1:{port}"), port

    def start_redis(self):
        port = free_port()
        args = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", self.directory, "--appendonly", "yes",
                "--appendfsync", "always", "--save", ""]
        ping = lambda: answers(("127.0.0.1", port), b"PING\r\n", b"+PONG")
        self.redis = Process(args, ping, os.path.join(self.directory, "redis.log"))
        self.redis.start()
        return f"redis://127.0.0.1:{port}"

    def restart(self, process, number):
        process.end(number)
        self.counters.add("down")
        process.start()

    def begin_calm(self):
        return self.broker("broker")[0]

    def begin_tls(self):
        files = [os.path.join(self.directory, name) for name in ("tls.key", "tls.crt")]
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", files[0], "-out", files[1], "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"],
            check=True, capture_output=True)
        self.ca_file = files[1]
        config = os.path.join(self.directory, "tls.toml")
        Path(config).write_text(f'[tls]\nkey_file = "{files[0]}"\ncert_file = "{files[1]}"\n')
        context = ssl.create_default_context(cafile=self.ca_file)
        return self.broker("broker", "--config", config, context=context)[0]

    def begin_kills(self):
        return self.broker("broker")[0]

    def fault_kills(self, _part):
        self.restart(self.brokers[0], signal.SIGKILL)

    def begin_restarts(self):
        return self.broker("broker", unix=True, tokens=True)[0]

    def fault_restarts(self, _part):
        self.restart(self.brokers[0], signal.SIGTERM)

    def begin_outages(self):
        return self.broker("broker", "--redis", self.start_redis())[0]

    def fault_outages(self, _part):
        self.restart(self.redis, signal.SIGKILL)

    def begin_brokers(self):
        redis = self.start_redis()
        self.balancer = Balancer([self.broker(name, "--redis", redis)[1] for name in ("one", "two")])
        return self.balancer.server

    def fault_brokers(self, part):
        self.restart(self.brokers[part % 2], signal.SIGKILL)

    def end(self):
        if self.thread:
            self.thread.join(PATIENCE)
        answer = {"faults": self.faults, "failures": self.failures}
        self.close()
        return answer

    def close(self):
        self.counters.end()
        if self.balancer:
            self.balancer.listener.close()
        for process in [*self.brokers, self.redis]:
            if process:
                process.end(signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)


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
        current, self.current = self.current, None
        return current.end()


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
