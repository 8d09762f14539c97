"""Plays the vectors of clients/conformance."""

import base64
import collections
import dataclasses
import logging
import threading
import unittest
from datetime import datetime, timezone

from dwell import Bury, Client, DwellError, NewMessage, PushManyError, Retry, Unavailable, Worker
from dwell.messages import seconds
from lab import lab

logging.getLogger("dwell").setLevel(logging.CRITICAL)


def client_of(begun):
    options = begun["vector"].get("client", {})
    token_file = begun["token_file"] if "token" in begun["vector"] else None
    return Client(begun["server"], token_file=token_file, retry_for=seconds(options.get("retry_for", "30s")), timeout=10)


def plain(value):
    """A result as in the answers of the broker."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        if isinstance(payload := fields.pop("payload", None), bytes):
            fields["payload_base64"] = base64.b64encode(payload).decode()
            fields["payload_text"] = payload.decode(errors="replace")
        return {name: plain(item) for name, item in fields.items()}
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return value


def differs(expected, actual):
    """Whether something expected is not there; `<x>` is any value."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return any(differs(value, actual.get(name)) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) != len(actual) or any(map(differs, expected, actual))
    return expected != actual and not (isinstance(expected, str) and expected.startswith("<"))


def message(fields):
    fields = dict(fields)
    if "payload_json" in fields:
        fields["payload"] = fields.pop("payload_json")
    if "payload_base64" in fields:
        fields["payload"] = base64.b64decode(fields.pop("payload_base64"))
    return fields


def kind(error):
    return {Unavailable: "unavailable", PushManyError: "push_many"}.get(type(error), "refused")


class Conformance(unittest.TestCase):
    def raised(self, expected, error):
        actual = {"kind": kind(error), "status": error.status, "type": error.type, "detail": error.detail,
                  "request_id": error.request_id, "repeated": error.repeated,
                  "groups": error.problem.get("groups"), "results": plain(getattr(error, "results", []))}
        self.assertFalse(differs(expected, actual), f"{expected} but {actual}")

    def call(self, client, step):
        args = dict(step["args"])
        topic = args.pop("topic")
        if step["call"] == "push_many":
            messages = args.get("messages") or [{"payload": args["payload"]}] * args["repeat"]
            return client.push_many(topic, [NewMessage(**message(m)) for m in messages])
        if step["call"] == "push":
            args = message(args)
            return client.push(topic, args.pop("payload"), **args)
        if step["call"] == "create_topic":
            return client.create_topic(topic, **args["settings"])
        return getattr(client, step["call"])(topic, **args)

    def produce(self, client, steps):
        for step in steps:
            try:
                result = self.call(client, step)
            except DwellError as error:
                self.assertIn("raises", step, f"{error!r}")
                self.raised(step["raises"], error)
                continue
            self.assertNotIn("raises", step)
            if "returns" in step:
                self.assertFalse(differs(step["returns"], plain(result)), f"{step['returns']} but {plain(result)}")
            if "returns_count" in step:
                self.assertEqual(step["returns_count"], len(result))

    def work(self, client, vector, is_async):
        handlers, wrong = vector["handlers"], []
        events = collections.Counter()
        worker = Worker(client, **vector["worker"], on_event=lambda name, _: events.update([name]))

        def begin(delivery):
            lab("/mark", name="begun")
            script = handlers.get(delivery.id, {})
            if differs(script.get("delivery", {}), plain(delivery)):
                wrong.append(plain(delivery))
            if "when" in script and not lab("/wait", when=script["when"])["is_met"]:
                wrong.append(f"{delivery.id} waited for {script['when']}")
            if "extend" in script and delivery.extend(script["extend"]) != script["is_ours"]:
                wrong.append(f"extend of {delivery.id}")
            return script.get("then", "return")

        def end(then):
            lab("/mark", name="lost" if then == "lost" else "handled")
            if "raise" in then:
                raise ValueError(then["raise"] * then.get("times", 1))
            if "retry" in then:
                raise Retry(then["reason"], after=then["retry"])
            if "bury" in then:
                raise Bury(then["bury"])

        if is_async:
            import asyncio

            async def handle(delivery):
                # The number of threads of asyncio.to_thread depends on the machine.
                answer = asyncio.get_running_loop().create_future()
                def ask():
                    then = begin(delivery)
                    answer.get_loop().call_soon_threadsafe(lambda: answer.done() or answer.set_result(then))
                threading.Thread(target=ask, daemon=True).start()
                try:
                    then = await answer
                    if then == "lost":
                        await asyncio.Event().wait()
                except asyncio.CancelledError:
                    end("lost")
                    raise
                end(then)
        else:
            def handle(delivery):
                then = begin(delivery)
                if then == "lost":
                    delivery.lost.wait()
                end(then)

        worker.handle(handle)
        raised = []

        def run():
            try:
                worker.run()
            except DwellError as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        if "stop" in vector:
            if not lab("/wait", when=vector["stop"]["when"])["is_met"]:
                wrong.append(f"there was never {vector['stop']['when']}")
            lab("/mark", name="stopping")
            worker.stop()
        thread.join(60)
        self.assertFalse(thread.is_alive(), "the worker does not stop")
        self.assertEqual(wrong, [])
        stats = dataclasses.asdict(worker.stats)
        self.assertFalse(differs(vector["stats"], stats), f"{vector['stats']} but {stats}")
        state = {"in_flight", "lateness_ms", "last_poll"}
        self.assertEqual({name: count for name, count in stats.items() if count and name not in state}, events - collections.Counter(settled=9**9))
        if "raises" in vector:
            self.raised(vector["raises"], raised[0])
        else:
            self.assertEqual(raised, [])

    def play(self, file, name, is_async=False):
        begun = lab("/vector", file=file, name=name)
        vector = begun["vector"]
        try:
            with client_of(begun) as client:
                if "worker" in vector:
                    self.work(client, vector, is_async)
                else:
                    self.produce(client, vector["calls"])
        finally:
            failures = lab("/vector/end")["failures"]
        self.assertEqual(failures, [])


def add(file, name, **options):
    suffix = "_async" if options else ""
    setattr(Conformance, f"test_{name}{suffix}", lambda self: self.play(file, name, **options))


for listed in lab("/vectors"):
    add(listed["file"], listed["name"])
    if listed["file"] == "worker.json":
        add(listed["file"], listed["name"], is_async=True)
