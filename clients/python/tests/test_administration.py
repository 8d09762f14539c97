"""Every call of the administration, on a broker whose time the test moves: with threads, and with asyncio."""

import asyncio
import gc
import inspect
import pickle
import threading
import unittest
import warnings
from datetime import timedelta

from dwell import AsyncClient, Client, DwellError, Group, KeyPause, NewMessage, Retry, Worker
from dwell.delivery import reason_of
from dwell.testing import broker
from dwell.values import from_answer


class Awaited:
    """A `Client` with the calls of an `AsyncClient`."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        call = getattr(self._client, name)

        async def awaited(*args, **options):
            return call(*args, **options)

        async def iterated(*args, **options):
            for item in call(*args, **options):
                yield item

        return iterated if inspect.isgeneratorfunction(call) else awaited


async def all_of(iterator):
    return [item async for item in iterator]


class Administration(unittest.TestCase):
    def setUp(self):
        context = broker()
        self.broker = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.now = self.broker.now()

    def both(self, story):
        """Plays a story with each client. The topics of the second one have other names."""
        with Client(self.broker.server) as client:
            asyncio.run(story(Awaited(client), "threads"))

        async def play():
            async with AsyncClient(self.broker.server) as client:
                await story(client, "asyncio")

        asyncio.run(play())

    def bury_one(self, topic, reason="no answer of the bank"):
        """A worker that fails once: with one attempt that makes a dead letter."""
        client = self.broker.client

        def handle(_):
            raise ValueError(reason)

        worker = Worker(client, topic, handler=handle, on_event=lambda name, _: name == "settled" and worker.stop())
        worker.run()

    def test_topics(self):
        async def story(client, topic):
            made = await client.create_topic(
                topic, partitions=2, visibility_timeout="1m", ttl=timedelta(days=3), annotations={"team": "shop"},
                backoff={"kind": "ladder", "steps": ["30m", "1h"]},
            )
            self.assertEqual(made.settings["visibility_timeout"], timedelta(minutes=1))
            self.assertEqual(made.settings["backoff"]["steps"], [timedelta(minutes=30), timedelta(hours=1)])
            copy = await client.create_topic(f"{topic}-copy", **made.settings)
            self.assertEqual(copy.settings, made.settings)
            await client.push(topic, "x", delay="90s")
            found = await client.topic(topic)
            self.assertEqual((found.groups, found.totals[0].scheduled, len(found.partitions)), (["default"], 1, 2))
            forecast = await client.forecast(topic, step="1m", spans=2)
            self.assertEqual((forecast.step, [span.due for span in forecast.spans]), (timedelta(minutes=1), [0, 1]))
            sums = []
            moved = await client.move(topic, f"{topic}-4", partitions=4, on_progress=sums.append)
            self.assertEqual((moved.moved, moved.done, sums[-1]), (1, True, moved))
            await client.delete_topic(f"{topic}-4")
            await client.delete_topic(f"{topic}-copy")
            self.assertEqual([name for name in await all_of(client.topics()) if name.startswith(topic)], [topic])
            with self.assertRaisesRegex(TypeError, "max_atempts"):
                await client.create_topic(topic, max_atempts=5)

        self.both(story)

    def test_groups(self):
        async def story(client, topic):
            await client.create_topic(topic, partitions=1)
            await client.push_many(topic, [NewMessage(n, delay="1h") for n in range(5)])
            made = await client.create_group(topic, "audit", copy_of="default", rate=10, max_in_flight=4)
            self.assertEqual((made.group, made.rate, made.max_in_flight, made.fair), ("audit", 10, 4, None))
            self.assertEqual((await client.create_group(topic, "audit", fair="key")).fair, "key")
            self.assertEqual((await client.create_group(topic, "audit", rate=20)).fair, "key")
            self.assertEqual((await client.create_group(topic, "audit", key_max_in_flight=5)).key_max_in_flight, 5)
            self.assertEqual((await client.create_group(topic, "audit", rate=10)).key_max_in_flight, 5)
            unlimited = await client.create_group(topic, "audit", key_max_in_flight=0)
            self.assertEqual((unlimited.fair, unlimited.key_max_in_flight), ("key", None))
            for change, rate, burst in (
                ({"key_rate": 0.5}, 0.5, None),
                ({"key_burst": 20}, 0.5, 20),
                ({"rate": 10}, 0.5, 20),
                ({"key_burst": 1}, 0.5, None),
                ({"key_rate": 10, "key_burst": 20}, 10, 20),
                ({"key_rate": 0}, None, None),
                ({"key_rate": 10}, 10, None),
                ({"key_rate": 0}, None, None),
            ):
                group = await client.create_group(topic, "audit", **change)
                self.assertEqual((group.fair, group.key_rate, group.key_burst), ("key", rate, burst), change)
            with self.assertRaises(DwellError) as refused:
                await client.create_group(topic, "audit", key_rate=10, key_burst=0)
            self.assertEqual((refused.exception.status, refused.exception.type), (422, "invalid"))
            weights, limits = {"gold_plan-*": 3, "customer-7": 5}, {"gold_plan-*": {"max_in_flight": 0, "rate": 10, "burst": 20}}
            for change, weighted, limited in (
                ({"weights": weights}, weights, {}),
                ({"key_limits": limits}, weights, limits),
                ({"weights": {}}, {}, limits),
                ({"key_limits": {}}, {}, {}),
            ):
                group = await client.create_group(topic, "audit", **change)
                self.assertEqual((group.weights, group.key_limits), (weighted, limited), change)
            for wrong in ({"weights": {"gold-*": 0}}, {"key_limits": {"gold-*": {"rate": 10, "burst": 0}}}):
                with self.assertRaises(DwellError) as refused:
                    await client.create_group(topic, "audit", **wrong)
                self.assertEqual((refused.exception.status, refused.exception.type), (422, "invalid"), wrong)
            pause = await client.pause_key(topic, "audit", "a/b ü", "10m")
            self.assertEqual((pause.key, pause.paused_until > self.now), ("a/b ü", True))
            until = self.now + timedelta(hours=1)
            self.assertEqual(await client.pause_key(topic, "audit", "later", until=until), KeyPause("later", until))
            keys = (await client.group(topic, "audit")).keys
            self.assertEqual((keys.paused_count, keys.paused), (2, [pause, KeyPause("later", until)]))
            for key in ("a/b ü", "later"):
                self.assertEqual(await client.resume_key(topic, "audit", key), KeyPause(key))
            keys = (await client.group(topic, "audit")).keys
            self.assertEqual((keys.paused_count, keys.paused), (0, []))
            for end in ({}, {"for_": "10m", "until": until}):
                with self.assertRaises(ValueError):
                    await client.pause_key(topic, "audit", "later", **end)
            self.assertIsNone((await client.create_group(topic, "audit", fair="none")).fair)
            self.assertEqual({group.group for group in await client.groups(topic)}, {"audit", "default"})
            paused = await client.pause(topic, "audit", "10m")
            self.assertEqual((paused.state, paused.paused_until > self.now), ("paused", True))
            self.assertEqual((await client.resume(topic, "audit")).state, "active")
            self.assertEqual((await client.group(topic)).totals.scheduled, 5)
            self.assertEqual((await client.purge(topic, all=True, dry_run=True)).matching, 5)
            with self.assertRaises(ValueError):
                await client.purge(topic, all=False)
            self.assertEqual((await client.purge(topic, all=True)).purged, 5)
            findings = await client.verify(topic)
            self.assertEqual(findings.findings, [])
            self.assertEqual((await client.verify(topic, repair=True)).findings, [])
            await client.delete_group(topic, "audit")
            self.assertEqual([group.group for group in await client.groups(topic)], ["default"])

        self.both(story)

    def test_messages(self):
        async def story(client, topic):
            await client.create_topic(topic, partitions=4)
            pushed = [NewMessage({"n": n}, id=f"m-{n}", key=f"k-{n}", delay=f"{n + 1}h") for n in range(20)]
            await client.push_many(topic, pushed)
            found = await all_of(client.list(topic, order="due", page_size=7))
            self.assertEqual([message.id for message in found], [f"m-{n}" for n in range(20)])
            self.assertEqual([message.json()["n"] for message in found], [*range(20)])
            half = await all_of(client.list(topic, from_=self.now + timedelta(hours=10, minutes=30), to=self.now + timedelta(days=9)))
            self.assertEqual(len(half), 10)
            cancelled = await client.cancel_many(topic, [*half, "unknown"])
            self.assertEqual([control.status for control in cancelled[:-1]], ["cancelled"] * 10)
            self.assertEqual((type(cancelled[-1]), cancelled[-1].type), (DwellError, "not-found"))
            self.assertEqual(cancelled[0].groups[0].status, "cancelled")
            moved = await client.reschedule_many(topic, ["m-0", pushed[1]], delay="3d")
            self.assertEqual([control.status for control in moved], ["rescheduled"] * 2)
            got = await client.get_many(topic, ["m-0", "m-19"])
            self.assertEqual((got[0].due_at - self.now > timedelta(days=2), got[1].type), (True, "not-found"))
            explained = await client.explain(topic, "m-2", key="k-2")
            self.assertEqual((explained.groups[0].reason, explained.groups[0].group), ("scheduled", "default"))

        self.both(story)

    def test_dead_letters(self):
        async def story(client, topic):
            await client.create_topic(topic, partitions=1, max_attempts=1)
            for n in range(3):
                await client.push(topic, n, id=f"d-{n}")
                await asyncio.to_thread(self.bury_one, topic)
            dead = await all_of(client.dead_letters(topic, order="oldest", page_size=2))
            self.assertEqual([(letter.id, letter.reason) for letter in dead], [(f"d-{n}", "max_attempts") for n in range(3)])
            error = dead[0].last_error
            self.assertEqual((error.class_, error.message), ("ValueError", "no answer of the bank"))
            self.assertIn("in handle", error.stack)
            self.assertEqual((await client.get(topic, "d-0")).last_error, error)
            self.assertEqual((await client.redrive(topic, all=True, dry_run=True)).matching, 3)
            self.assertEqual((await client.redrive(topic, ids=dead[:1])).redriven, 1)
            self.assertEqual((await client.redrive(topic, text="bank", limit=1)).redriven, 1)
            self.assertEqual((await client.purge_dead_letters(topic, reason="max_attempts")).purged, 1)
            with self.assertRaises(ValueError):
                await client.redrive(topic)
            with self.assertRaises(ValueError):
                await client.purge_dead_letters(topic, all=True, ids=["d-0"])

        self.both(story)

    def test_messages_by_due_time(self):
        async def story(client, topic):
            await client.create_topic(topic, partitions=2)
            await client.push_many(topic, [NewMessage(n, delay="30m") for n in range(50)])
            hour = {"from_": self.now, "to": self.now + timedelta(hours=1)}
            self.assertEqual(await client.count_bulk(topic, **hour), 50)
            sums = []
            changed = await client.bulk(topic, action="postpone", by="2h", on_progress=sums.append, **hour)
            self.assertEqual((changed.changed, changed.passed_over, sums[-1]), (50, 0, changed))
            self.assertEqual(await client.count_bulk(topic, **hour), 0)

        self.both(story)

    def test_cron(self):
        async def story(client, topic):
            await client.create_topic(topic, partitions=2)
            made = await client.put_cron(topic, "nightly", {"close": "books"}, cron="0 3 * * *", time_zone="Europe/Berlin")
            self.assertEqual((made.name, made.state, made.payload), ("nightly", "active", b'{"close":"books"}'))
            await client.put_cron(topic, "tick", "tock", every="1h", ttl=timedelta(minutes=5), missed="skip")
            self.assertEqual((await client.cron(topic, "tick")).every, timedelta(hours=1))
            self.assertEqual((await client.pause_cron(topic, "tick")).state, "paused")
            self.assertEqual((await client.resume_cron(topic, "tick")).state, "active")
            await client.delete_cron(topic, "nightly")
            self.assertEqual([job.name for job in await all_of(client.crons(topic))], ["tick"])
            with self.assertRaises(ValueError):
                await client.put_cron(topic, "both", "x", cron="@daily", every="1d")

        self.both(story)

    def test_brokers(self):
        async def story(client, _):
            brokers = await client.brokers()
            self.assertEqual([(broker.here, broker.doing) for broker in brokers], [(True, "serving")])
            attention = await client.attention()
            self.assertEqual((attention.topics, attention.topics_seen), (0, 0))

        self.both(story)


class Arguments(unittest.TestCase):
    """Arguments that cannot be right are refused before a request: nothing listens here."""

    client = Client("http://127.0.0.1:1", retry_for=0)

    def test_wrong_arguments_are_refused(self):
        client = self.client
        for call in (
            lambda: client.push("", "x"),
            lambda: client.push("orders", "x", id=""),
            lambda: client.push("orders", "x", key=""),
            lambda: client.push("orders", "x", delay="-1s"),
            lambda: client.push("orders", "x", delay=timedelta(seconds=-1)),
            lambda: client.push("orders", "x", ttl=""),
            lambda: client.push("orders", "x", delay="1s", due_at="2030-01-01T00:00:00Z"),
            lambda: client.push_many("orders", [NewMessage("x", dedup_key="")]),
            lambda: client.cancel("orders", ""),
            lambda: client.reschedule("orders", "a"),
            lambda: client.reschedule("orders", "a", delay="1s", due_at="2030-01-01T00:00:00Z"),
            lambda: client.get("orders", "a", key=""),
            lambda: client.pause("orders", ""),
            lambda: client.create_topic("orders", ttl="-1s"),
            lambda: Worker(client, ""),
            lambda: Worker(client, "orders", group=""),
            lambda: Worker(client, "orders", concurrency=0),
            lambda: Worker(client, "orders", visibility="0s"),
            lambda: Worker(client, "orders", drain=timedelta(seconds=-1)),
            lambda: Retry(after="-1s"),
            lambda: Client("ftp://127.0.0.1"),
            lambda: Client(retry_for=-1),
        ):
            with self.subTest(inspect.getsource(call).strip()), self.assertRaises(ValueError):
                call()
        for call in (lambda: client.push("orders", "x", delay=30), lambda: client.push(None, "x")):
            with self.subTest(inspect.getsource(call).strip()), self.assertRaises(TypeError):
                call()


class Answers(unittest.TestCase):
    def test_what_takes_turns_in_a_group_may_be_absent_or_new(self):
        for fair in ({}, {"fair": "key"}, {"fair": "tenant"}):
            group = from_answer(Group, {"group": "audit", "state": "active", **fair})
            self.assertEqual(group.fair, fair.get("fair"))

    def test_the_limits_of_a_key_may_be_absent(self):
        for limits in ({}, {"key_max_in_flight": 5}, {"key_rate": 0.5}, {"key_rate": 10.0, "key_burst": 20}, {"key_rate": 10.0, "key_burst": None}):
            group = from_answer(Group, {"group": "audit", "state": "active", "fair": "key", **limits})
            for name in ("key_max_in_flight", "key_rate", "key_burst"):
                self.assertEqual(getattr(group, name), limits.get(name), (name, limits))

    def test_the_weights_and_the_limits_of_some_keys_may_be_absent(self):
        for given in ({}, {"weights": {"gold_plan-*": 3}}, {"key_limits": {"gold_plan-*": {"max_in_flight": 0}, "a": {"rate": 0.5, "burst": 20}}}):
            group = from_answer(Group, {"group": "audit", "state": "active", "fair": "key", **given})
            for name in ("weights", "key_limits"):
                self.assertEqual(getattr(group, name), given.get(name, {}), (name, given))


class Reasons(unittest.TestCase):
    """A worker says where an exception was raised."""

    def reason(self, handler, **options):
        try:
            handler()
        except Exception as error:
            return reason_of(error, has_details=True, **options)

    def test_a_reason_ends_where_the_error_arose(self):
        def deep(n):
            if n:
                deep(n - 1) if n % 2 else shallow(n)
            raise KeyError("ä" * 3000)

        def shallow(n):
            deep(n - 1)

        reason = self.reason(lambda: deep(200))
        self.assertEqual((reason["class"], len(reason["message"].encode())), ("KeyError", 999))
        self.assertLessEqual(len(reason["stack"].encode()), 4096)
        self.assertTrue(reason["stack"].endswith('raise KeyError("ä" * 3000)'), reason["stack"][-100:])

    def test_a_reason_has_the_cause_and_the_module(self):
        def handle():
            try:
                raise ConnectionError("refused")
            except ConnectionError as error:
                raise DwellError(503, {"type": "urn:dwell:error:full", "detail": "wait"}) from error

        reason = self.reason(handle)
        self.assertEqual((reason["class"], reason["message"]), ("dwell.errors.DwellError", "503 full: wait"))
        self.assertIn("ConnectionError: refused", reason["stack"])


class Errors(unittest.TestCase):
    def test_unavailable_names_the_server_and_the_cause(self):
        for client in (Client("http://127.0.0.1:1", retry_for=0.2), Awaitless(AsyncClient("http://127.0.0.1:1", retry_for=0.2))):
            with self.assertRaises(DwellError) as caught:
                client.push("orders", "x")
            error = caught.exception
            self.assertRegex(str(error), r"^http://127.0.0.1:1: no answer within 0.2 s: ConnectionRefusedError: ")
            self.assertIsInstance(error.__cause__, ConnectionRefusedError)
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((str(again), type(again), again.status), (str(error), type(error), 0))

    def test_a_call_ends_when_its_task_ends(self):
        async def push():
            async with AsyncClient("http://127.0.0.1:1", retry_for=60) as client:
                await asyncio.wait_for(client.push("orders", "x"), 0.2)

        with self.assertRaises(asyncio.TimeoutError):
            asyncio.run(push())

    def test_a_client_may_be_used_in_one_loop_after_another(self):
        with broker() as running, warnings.catch_warnings():
            # The connection of a loop that is over is left to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            client = AsyncClient(running.server)
            for n in range(3):
                self.assertEqual(asyncio.run(client.push("orders", "x", id=f"m-{n}")).status, "stored")
            del client
            gc.collect()

    def test_threads_share_a_client(self):
        with broker() as running:
            threads = [threading.Thread(target=running.client.push, args=("orders", n)) for n in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(running.client.topic("orders").totals[0].ready, 32)


class Awaitless:
    """An `AsyncClient` with the calls of a `Client`."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return lambda *args, **options: asyncio.run(getattr(self._client, name)(*args, **options))


if __name__ == "__main__":
    unittest.main()
