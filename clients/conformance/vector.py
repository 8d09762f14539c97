"""A scripted server that expects the requests of a vector: clients/README.md says what a vector is."""

import json
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from counters import PATIENCE, Counters

VECTORS = Path(__file__).parent / "vectors"

# A request that would be refused again.
INVALID = {"type": "urn:dwell:error:invalid", "title": "Invalid request", "status": 422, "detail": "why", "request_id": "r1"}

# The kind of an exchange, by its method and path.
KINDS = [(method, re.compile("/v1/" + re.sub(r"\{\w+\}", "[^/]+", path)), kind) for method, path, kind in (
    ("POST", "topics/{topic}/messages", "push"),
    ("POST", "topics/{topic}/messages/batch", "push_many"),
    ("GET", "topics/{topic}/messages", "list"),
    ("GET", "topics/{topic}/messages/{id}", "get"),
    ("PATCH", "topics/{topic}/messages/{id}", "reschedule"),
    ("DELETE", "topics/{topic}/messages/{id}", "cancel"),
    ("GET", "topics/{topic}/messages/{id}/explain", "explain"),
    ("GET", "topics", "topics"),
    ("GET", "topics/{topic}", "topic"),
    ("PUT", "topics/{topic}", "create_topic"),
    ("DELETE", "topics/{topic}", "delete_topic"),
    ("POST", "topics/{topic}/move", "move"),
    ("GET", "topics/{topic}/groups", "groups"),
    ("GET", "topics/{topic}/groups/{group}", "group"),
    ("PUT", "topics/{topic}/groups/{group}", "create_group"),
    ("DELETE", "topics/{topic}/groups/{group}", "delete_group"),
    ("POST", "topics/{topic}/groups/{group}/pause", "pause"),
    ("POST", "topics/{topic}/groups/{group}/resume", "resume"),
    ("POST", "topics/{topic}/groups/{group}/keys/{key}/pause", "pause_key"),
    ("POST", "topics/{topic}/groups/{group}/keys/{key}/resume", "resume_key"),
    ("POST", "topics/{topic}/groups/{group}/purge", "purge"),
    ("GET", "topics/{topic}/groups/{group}/forecast", "forecast"),
    ("GET", "topics/{topic}/groups/{group}/verify", "verify"),
    ("POST", "topics/{topic}/groups/{group}/verify", "repair"),
    ("GET", "topics/{topic}/groups/{group}/bulk", "bulk_count"),
    ("POST", "topics/{topic}/groups/{group}/bulk", "bulk"),
    ("GET", "topics/{topic}/groups/{group}/dead-letters", "dead_letters"),
    ("POST", "topics/{topic}/groups/{group}/dead-letters/redrive", "redrive"),
    ("POST", "topics/{topic}/groups/{group}/dead-letters/purge", "purge_dead_letters"),
    ("POST", "topics/{topic}/groups/{group}/reserve", "reserve"),
    ("POST", "topics/{topic}/groups/{group}/ack", "ack"),
    ("POST", "topics/{topic}/groups/{group}/nack", "nack"),
    ("POST", "topics/{topic}/groups/{group}/extend", "extend"),
    ("POST", "topics/{topic}/groups/{group}/release", "release"),
    ("GET", "topics/{topic}/cron", "crons"),
    ("GET", "topics/{topic}/cron/{name}", "cron"),
    ("PUT", "topics/{topic}/cron/{name}", "put_cron"),
    ("DELETE", "topics/{topic}/cron/{name}", "delete_cron"),
    ("POST", "topics/{topic}/cron/{name}/pause", "pause_cron"),
    ("POST", "topics/{topic}/cron/{name}/resume", "resume_cron"),
    ("GET", "brokers", "brokers"),
    ("GET", "attention", "attention"),
)]

# The word before a name in a template says which texts it may be bound to; with the limits of the broker in bytes.
WORDS = {
    None: lambda value: True,
    "ulid": lambda value: isinstance(value, str) and re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", value),
    "class": lambda value: isinstance(value, str) and 0 < len(value.encode()) <= 256,
    "stack": lambda value: isinstance(value, str) and 0 < len(value.encode()) <= 4096,
}


def matches(expected, actual, names):
    """How a value differs from its template, or None. `<x>` binds any value to the name x, `<ulid x>` a ULID."""
    if isinstance(expected, str) and (name := re.fullmatch(r"<(?:(\w+) )?(\w+)>", expected)):
        word, name = name.groups()
        if name in names:
            return None if names[name] == actual else f"{actual!r} is not {names[name]!r} as before"
        if not WORDS[word](actual):
            return f"{actual!r} is no {word}"
        names[name] = actual
        return None
    if isinstance(expected, dict) and isinstance(actual, dict):
        # `name?` may be absent.
        fields = {k.removesuffix("?"): v for k, v in expected.items() if not k.endswith("?") or k.removesuffix("?") in actual}
        if fields.keys() != actual.keys():
            return f"has {sorted(actual)}, expected {sorted(fields)}"
        return next(filter(None, (matches(v, actual[k], names) for k, v in fields.items())), None)
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
DURATIONS = {"advance", "by", "dead_max_age", "debounce_max", "dedup_for", "dedup_window", "delay", "every", "for", "initial", "max", "older_than",
             "spread", "step", "ttl", "visibility_timeout", "wait", "younger_than"}
TIMES = {"due_at", "from", "to", "until"}
# Contents are compared as they are.
CONTENTS = {"payload", "payload_json", "meta", "annotations", "weights", "key_limits"}


def milliseconds(text):
    return round(sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smhd])", text)))


def in_utc(value):
    """A time as the broker writes it; another value as it is, such as the topic of a move."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    try:
        time = datetime.fromtimestamp(value / 1000, timezone.utc) if isinstance(value, int) else \
            datetime.fromisoformat(re.sub("[Zz]$", "+00:00", value)).astimezone(timezone.utc)
    except (TypeError, ValueError):
        return value
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"


def normal(value):
    """A body or query in which each duration that was given as text has its second name, and each time is in UTC."""
    if isinstance(value, list):
        return [normal(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for name, field in value.items():
        if name in CONTENTS:
            result[name] = field
        elif name in DURATIONS and isinstance(field, str):
            result[name + "_ms"] = milliseconds(field)
        elif name == "steps":
            result["steps_ms"] = [milliseconds(step) for step in field]
        else:
            result[name] = in_utc(field) if name in TIMES else normal(field)
    return result


def texts(query):
    return {name: str(value) for name, value in normal(query).items()}


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
                polls.add(self.kind_of(*request[:2]) == "reserve")
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
            return (*line.split()[:2], headers, body) if line else None
        except (OSError, ValueError):
            return None

    def answer(self, connection, method, target, headers, data):
        url = urlsplit(target)
        kind = self.kind_of(method, url.path)
        body = normal(json.loads(data)) if data else None
        with self.lock:
            exchange = self.next_of(kind, url.path)
            if exchange:
                if not exchange.get("any"):
                    self.left[kind].remove(exchange)
                self.check(kind, exchange, method, url, headers, data, body)
            elif kind == "reserve" and self.vector.get("worker"):
                exchange = {"answer": "hang"}
            else:
                self.failures.append(f"unexpected {method} {target} {json.dumps(body)[:2000]}")
                exchange = {"answer": {"status": 500}}
        answer = exchange["answer"]
        self.counters.add(f"{kind} asked")
        if "after" in exchange and not self.counters.wait(exchange["after"]):
            self.failures.append(f"{kind}: waited for {exchange['after']}, but there was only {self.counters.counts}")
        threading.Event().wait(exchange.get("delay_ms", 0) / 1000)
        if "token" in exchange:
            self.write_token(exchange["token"])
        if answer == "hang":
            self.wait_for_end(connection, kind)
            if "then" not in exchange:
                return False
            answer = exchange["then"]
        if answer == "close":
            self.counters.add(kind)
            return False
        return self.send(connection, kind, answer, body)

    def wait_for_end(self, connection, kind):
        """The client ends the request by ending what it sends."""
        connection.settimeout(PATIENCE)
        try:
            if connection.recv(1):
                self.failures.append(f"{kind}: more was sent before the answer")
        except OSError:
            pass
        self.counters.add(f"{kind} ended")

    def send(self, connection, kind, answer, asked):
        status, body = self.body_of(kind, answer, asked)
        data = b"" if status == 204 else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} X"]
        if data:
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in answer.get("headers", {}).items()]
        cut = len(data) // 2 if answer.get("cut") else len(data)
        # Counted first: a client may act on the answer before this thread continues.
        self.counters.add(kind)
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + data[:cut])
        return cut == len(data)

    def next_of(self, kind, path):
        """The next exchange of a kind. Requests that are under way together are told apart by their paths."""
        left = self.left.get(kind, [])
        return next((exchange for exchange in left if exchange.get("expect", {}).get("path", path) == path), left[0] if left else None)

    def body_of(self, kind, answer, asked):
        status = answer.get("status", 200)
        if "deliveries" in answer:
            visible = answer.get("visibility_timeout_ms", asked.get("visibility_timeout_ms", 30_000))
            return status, {"deliveries": [delivery(short) for short in answer["deliveries"]], "visibility_timeout_ms": visible}
        if "verdicts" in answer:
            receipts = [r if isinstance(r, str) else r["receipt"] for r in asked["receipts"]]
            said = answer["verdicts"]
            if not set(answer.get("refuses", ())).isdisjoint(receipts):
                return INVALID["status"], INVALID
            with self.lock:
                results = [{"receipt": receipt, "status": self.verdict(said, receipt)} for receipt in receipts]
            self.counters.add(f"{kind} receipts", sum(r["status"] != "unreachable" for r in results))
            return status, {"failed": 0, "results": results, **answer.get("body", {})}
        if answer.get("stores_all"):
            return self.stored(status, answer, asked["messages"])
        return status, filled(answer.get("body", {}), self.names)

    @staticmethod
    def stored(status, answer, messages):
        """The results of a batch. One message of `refuses` refuses all of it; `errors` are results of some."""
        wrong = [{"pointer": f"/messages/{n}/{answer['refuses'][m['id']]}", "code": "range", "detail": "why"}
                 for n, m in enumerate(messages) if m["id"] in answer.get("refuses", {})]
        if wrong:
            return INVALID["status"], {**INVALID, "errors": wrong}
        errors = answer.get("errors", {})
        return status, {"results": [
            {"id": m["id"], "status": "error", "error": errors[m["id"]]} if m["id"] in errors else
            {"id": m["id"], "partition": 0, "due_at": "2026-01-02T03:04:05.678Z", "status": "stored"} for m in messages]}

    @staticmethod
    def verdict(said, receipt):
        """The same for all receipts, or one for each; of several the first that was not used."""
        if isinstance(said, str):
            return said
        verdicts = said.get(receipt, said["*"])
        return verdicts if isinstance(verdicts, str) else verdicts.pop(0)

    def check(self, kind, exchange, method, url, headers, data, body):
        expected = exchange.get("expect", {})
        wrong = []
        if not self.counters.has(exchange.get("needs", {})):
            wrong.append(f"came before {exchange['needs']}")
        if "method" in expected and method != expected["method"]:
            wrong.append(f"method {method}")
        if "path" in expected and url.path != expected["path"]:
            wrong.append(f"path {url.path}, expected {expected['path']}")
        query = texts(dict(parse_qsl(url.query, keep_blank_values=True)))
        if "query" in expected and query != texts(expected["query"]):
            wrong.append(f"query {query}, expected {texts(expected['query'])}")
        for name, value in expected.get("headers", {}).items():
            if value is None and name.lower() in headers:
                wrong.append(f"header {name} is there")
            elif value is not None and (why := matches(value, headers.get(name.lower()), self.names)):
                wrong.append(f"header {name}: {why}")
        wrong += self.wrong_body(expected, data, body)
        self.failures += [f"{kind}: {text}"[:2000] for text in wrong]

    def wrong_body(self, expected, data, body):
        if "producer" in self.vector and body and "messages" in body:
            # Pushes that wait together may be in any order.
            body = {**body, "messages": sorted(body["messages"], key=lambda message: message["id"])}
        if "body" in expected and (why := matches(normal(expected["body"]), body, self.names)):
            yield f"body {why}"
        items = (body or {}).get("receipts", (body or {}).get("messages", []))
        if len(items) != expected.get("count", len(items)):
            yield f"{len(items)} entries, expected {expected['count']}"
        if len(items) > expected.get("max_count", len(items)):
            yield f"{len(items)} entries, expected at most {expected['max_count']}"
        if len(data) > expected.get("max_bytes", len(data)):
            yield f"{len(data)} bytes, expected at most {expected['max_bytes']}"

    @staticmethod
    def kind_of(method, path):
        return next((kind for verb, pattern, kind in KINDS if verb == method and pattern.fullmatch(path)), f"{method} {path}")

    def end(self):
        elapsed = round((time.monotonic() - self.began) * 1000)
        for kind, left in self.left.items():
            missing = [exchange for exchange in left if not (exchange.get("any") or exchange.get("optional"))]
            if missing:
                self.failures.append(f"{len(missing)} requests are missing: {kind}")
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
