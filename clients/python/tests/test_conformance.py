"""Plays the vectors of clients/conformance: with threads, and with asyncio."""

import asyncio
import collections
import concurrent.futures
import dataclasses
import inspect
import logging
import threading
import unittest

from dwell import AsyncClient, AsyncProducer, Bury, Client, DwellError, Producer, Retry, Worker
from lab import lab
from vectors import call_of, differs, differs_error, message, options_of, plain

logging.getLogger("dwell").setLevel(logging.CRITICAL)
PATIENCE = 60


class Loop:
    """An event loop in a thread."""

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def run(self, coroutine):
        return self.begin(coroutine).result(PATIENCE)

    def begin(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)


class Threads:
    """Callers of a producer for threads."""

    def __init__(self, begun, options, steps):
        self.client = Client(begun["server"], **options_of(begun))
        self.producer = Producer(self.client, **options)
        # A thread that waits for room gives up by itself.
        self.given_up = {step["cancel"] for step in steps if "cancel" in step}
        self.callers = {}

    def push(self, name, topic, payload, options):
        submitted, answer = threading.Event(), concurrent.futures.Future()
        self.callers[name] = [None, answer]

        def call():
            try:
                timeout = 0.3 if name in self.given_up else None
                self.callers[name][0] = future = self.producer.submit(topic, payload, timeout=timeout, **options)
                submitted.set()
                answer.set_result(future.result(PATIENCE))
            except BaseException as error:
                submitted.set()
                answer.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        submitted.wait(0.1)

    def cancel(self, name):
        future, answer = self.callers[name]
        if future:
            future.cancel()
        answer.exception(PATIENCE)

    def answer(self, name):
        return self.callers[name][1].result(PATIENCE)

    def flush(self):
        self.producer.flush(PATIENCE)

    def close(self):
        self.producer.close()

    def end(self):
        self.close()
        self.client.close()


class Tasks:
    """Callers of a producer for asyncio."""

    def __init__(self, begun, options, _):
        self.loop = Loop().__enter__()
        self.callers = {}
        self.client = AsyncClient(begun["server"], **options_of(begun))
        self.producer = self.loop.run(self.made(options))

    async def made(self, options):
        return AsyncProducer(self.client, **options)

    def push(self, name, topic, payload, options):
        self.callers[name] = self.loop.begin(self.producer.push(topic, payload, **options))
        self.loop.run(asyncio.sleep(0.01))

    def cancel(self, name):
        self.callers[name].cancel()
        self.loop.run(asyncio.sleep(0.01))

    def answer(self, name):
        return self.callers[name].result(PATIENCE)

    def flush(self):
        self.loop.run(self.producer.flush())

    def close(self):
        self.loop.run(self.producer.aclose())

    def end(self):
        self.close()
        self.loop.run(self.client.aclose())
        self.loop.__exit__()


class Conformance(unittest.TestCase):
    def call(self, client, loop, step):
        """The result of a call; of an iterator all that it gives, or the first so many."""
        name, args, options = call_of(step)
        result = getattr(client, name)(*args, **options)
        if inspect.isgenerator(result):
            return [entry for entry, _ in zip(result, range(step.get("take", 1 << 30)))]
        if inspect.isasyncgen(result):
            return loop.run(self.taken(result, step.get("take", 1 << 30)))
        return loop.run(result) if inspect.iscoroutine(result) else result

    @staticmethod
    async def taken(iterator, most):
        entries = []
        async for entry in iterator:
            entries.append(entry)
            if len(entries) == most:
                break
        return entries

    def produce(self, client, loop, steps):
        for step in steps:
            try:
                result = self.call(client, loop, step)
            except (DwellError, ValueError, TypeError) as error:
                self.assertIn("raises", step, f"{error!r}")
                self.assertIsNone(differs_error(step["raises"], error, client.server))
                continue
            self.assertNotIn("raises", step)
            result = {"waiting": result} if step["call"] == "bulk_count" else plain(result)
            if "returns" in step:
                self.assertFalse(differs(step["returns"], result), f"{step['returns']} but {result}")
            if "returns_count" in step:
                self.assertEqual(step["returns_count"], len(result))

    def gather(self, begun, kind):
        vector = begun["vector"]
        names = {"at_once": "batches_in_flight", "batch": "batch_messages", "buffer": "buffer_messages"}
        options = {names.get(name, name): value for name, value in vector["producer"].items()}
        callers = kind(begun, options, vector["steps"])
        try:
            for step in vector["steps"]:
                self.step(callers, step, begun["server"])
        finally:
            callers.end()

    def step(self, callers, step, server):
        if "push" in step:
            options = dict(step["push"])
            topic = options.pop("topic")
            callers.push(step["as"], topic, *message(options))
            lab("/mark", name="pushed")
        elif "wait" in step:
            self.assertTrue(lab("/wait", when=step["wait"])["is_met"], f"there was never {step['wait']}")
        elif "cancel" in step:
            callers.cancel(step["cancel"])
            lab("/mark", name="cancelled")
        elif "answer" in step:
            self.answered(callers, step, server)
        else:
            callers.flush() if "flush" in step else callers.close()

    def answered(self, callers, step, server):
        try:
            result = plain(callers.answer(step["answer"]))
        except (concurrent.futures.CancelledError, TimeoutError):
            self.assertEqual(step.get("raises"), {"kind": "cancelled"})
        except Exception as error:
            self.assertIn("raises", step, f"{error!r}")
            self.assertIsNone(differs_error(step["raises"], error, server))
        else:
            self.assertIn("returns", step)
            self.assertFalse(differs(step["returns"], result), f"{step['returns']} but {result}")

    def handler(self, handlers, wrong, is_async):
        """The handler of a worker. It adds to `wrong` if something is not as the vector says."""

        def begin(delivery):
            lab("/mark", name="begun")
            script = handlers.get(delivery.id, {})
            if differs(script.get("delivery", {}), plain(delivery)):
                wrong.append(plain(delivery))
            if "when" in script and not lab("/wait", when=script["when"])["is_met"]:
                wrong.append(f"{delivery.id} waited for {script['when']}")
            if "extend" in script:
                wrong.extend(filter(None, [extend(delivery, script)]))
            return script.get("then", "return")

        def extend(delivery, script):
            """How an extension differs from its script, or None."""
            try:
                is_ours = delivery.extend(script["extend"])
            except DwellError as error:
                return differs_error(script["raises"], error, "") if "raises" in script else repr(error)
            return None if is_ours is script.get("is_ours") else f"extend of {delivery.id}: {is_ours}"

        def fall(text, depth):
            if depth:
                fall(text, depth - 1)
            raise RuntimeError(text)

        def end(then):
            lab("/mark", name="lost" if then == "lost" else "handled")
            if "panic" in then:
                fall(then["panic"], then.get("depth", 0))
            if "raise" in then:
                raise ValueError(then["raise"] * then.get("times", 1))
            if "retry" in then:
                raise Retry(then["reason"], after=then["retry"], pause_key=then.get("pause_key", False))
            if "bury" in then:
                raise Bury(then["bury"])

        if is_async:
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

        return handle

    def work(self, client, vector, is_async):
        handlers, wrong = vector["handlers"], []
        events = collections.Counter()
        try:
            worker = Worker(client, **vector["worker"], on_event=lambda name, _: events.update([name]))
        except ValueError as error:
            self.assertIsNone(differs_error(vector["raises"], error, client.server))
            return

        handle = self.handler(handlers, wrong, is_async)
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
            self.assertIsNone(differs_error(vector["raises"], raised[0], client.server))
        else:
            self.assertEqual(raised, [])

    def play(self, file, name, is_async=False):
        begun = lab("/vector", file=file, name=name)
        vector, options = begun["vector"], options_of(begun)
        try:
            if "producer" in vector:
                self.gather(begun, Tasks if is_async else Threads)
            elif "worker" in vector:
                with Client(begun["server"], **options) as client:
                    self.work(client, vector, is_async)
            elif is_async:
                with Loop() as loop:
                    client = AsyncClient(begun["server"], **options)
                    self.produce(client, loop, vector["calls"])
                    loop.run(client.aclose())
            else:
                with Client(begun["server"], **options) as client:
                    self.produce(client, None, vector["calls"])
        finally:
            failures = lab("/vector/end")["failures"]
        self.assertEqual(failures, [])


def add(file, name, **options):
    suffix = "_async" if options else ""
    setattr(Conformance, f"test_{name}{suffix}", lambda self: self.play(file, name, **options))


for listed in lab("/vectors"):
    add(listed["file"], listed["name"])
    add(listed["file"], listed["name"], is_async=True)
