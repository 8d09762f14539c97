"""Plays against real brokers that are killed, restarted, and cut off from Redis: nothing is lost."""

import asyncio
import logging
import os
import threading
import time
import unittest

from dwell import AsyncClient, Client, DwellError, NewMessage, Producer, Worker
from lab import lab

logging.getLogger("dwell").setLevel(logging.CRITICAL)
MESSAGES = int(os.environ.get("MESSAGES", "2000"))
PUSHERS = 4
# Messages are due within this time, in milliseconds: about 1,000 a second.
SPREAD = max(1000, MESSAGES)


class Broker(unittest.TestCase):
    def begin(self, story, messages=0):
        begun = lab("/story", name=story, messages=messages)
        client = Client(begun["server"], token_file=begun["token_file"], ca_file=begun.get("ca_file"), timeout=10, retry_for=60)
        self.addCleanup(client.close)
        return client

    @staticmethod
    def push(client, producer, numbers):
        """Pushes messages with a producer, or as one batch."""
        messages = [({"n": n}, {"id": f"m-{n}", "delay": f"{n * 7919 % SPREAD}ms"}) for n in numbers]
        if not producer:
            return client.push_many("orders", [NewMessage(payload, **options) for payload, options in messages])
        futures = [producer.submit("orders", payload, **options) for payload, options in messages]
        return [future.result() for future in futures]

    def story(self, name, faults):
        client = self.begin(name, MESSAGES)
        self.assertEqual(client.create_topic("orders", partitions=4).settings["partitions"], 4)
        producer = Producer(client)
        self.addCleanup(producer.close)
        pushed, handled, late, early = set(), {}, [], []
        lock, is_done = threading.Lock(), threading.Event()

        def push(pusher):
            for first in range(pusher, MESSAGES, PUSHERS * 50):
                results = self.push(client, producer if pusher % 2 else None, range(first, min(first + PUSHERS * 50, MESSAGES), PUSHERS))
                with lock:
                    pushed.update(result.id for result in results)

        def handle(delivery):
            now = time.time()
            with lock:
                if now < delivery.due_at.timestamp():
                    early.append(delivery.id)
                is_new = delivery.id not in handled
                handled[delivery.id] = handled.get(delivery.id, 0) + 1
                if delivery.attempt == 1:
                    late.append(delivery.lateness_ms)
                count = len(handled)
            step = max(1, MESSAGES // 100)
            if is_new and count % step == 0:
                lab("/mark", name="handled", by=step)
            if is_new and not faults and count % (MESSAGES // 4) == 0:
                workers[-1].stop()
            if count == MESSAGES:
                is_done.set()

        workers, is_over = [], threading.Event()

        def work():
            # Where the brokers have no faults, the worker is replaced while messages are in flight.
            while not is_over.is_set() and not is_done.is_set():
                workers.append(Worker(client, "orders", concurrency=32, visibility="3s", wait="5s", handler=handle))
                workers[-1].run()

        threads = [threading.Thread(target=push, args=(n,)) for n in range(PUSHERS)] + [threading.Thread(target=work)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        patience = 120 + MESSAGES / 50
        for thread in threads[:-1]:
            thread.join(patience)
        is_complete = is_done.wait(patience)
        took = time.monotonic() - began
        is_over.set()
        workers[-1].stop()
        threads[-1].join(60)
        ended = lab("/story/end")
        again = sum(handled.values()) - len(handled)
        lost = MESSAGES - len(handled)
        late.sort()
        stale = sum(worker.stats.stale for worker in workers)
        print(f"python {name}: {MESSAGES} messages in {took:.1f} s, {ended['faults']} faults, {lost} lost, {len(early)} early, "
              f"{again} again, {stale} stale, p99 of lateness {late[len(late) * 99 // 100] if late else 0} ms",
              flush=True)
        self.assertEqual(ended["failures"], [])
        self.assertEqual(ended["faults"], faults)
        self.assertEqual(len(pushed), MESSAGES)
        self.assertTrue(is_complete, f"{lost} messages are lost")
        self.assertEqual(early, [])
        if not faults:
            self.assertEqual((again, stale), (0, 0))
        self.assertFalse(threads[-1].is_alive())

    def test_nothing_is_lost_without_faults(self):
        self.story("calm", 0)

    def test_nothing_is_lost_when_the_broker_is_killed(self):
        self.story("kills", 4)

    def test_nothing_is_lost_when_the_broker_is_restarted(self):
        self.story("restarts", 4)

    def test_nothing_is_lost_when_redis_is_killed(self):
        self.story("outages", 4)

    def test_nothing_is_lost_when_one_of_two_brokers_is_killed(self):
        self.story("brokers", 4)

    def test_messages_are_pushed_changed_and_found(self):
        client = self.begin("calm")
        try:
            pushed = client.push("orders", {"order": 4713}, id="close-4713", key="order-4713", delay="30m", meta={"shop": "7"})
            self.assertEqual((pushed.id, pushed.status, pushed.topic_created), ("close-4713", "stored", True))
            again = client.push("orders", {"order": 4713}, id="close-4713", key="order-4713", delay="30m")
            self.assertEqual((again.status, again.due_at), ("duplicate", pushed.due_at))
            message = client.get("orders", "close-4713", key="order-4713")
            self.assertEqual((message.state, message.json(), message.meta), ("scheduled", {"order": 4713}, {"shop": "7"}))
            moved = client.reschedule("orders", "close-4713", key="order-4713", delay="90m", etag=message.etag)
            self.assertEqual(moved.status, "rescheduled")
            self.assertAlmostEqual((moved.due_at - pushed.due_at).total_seconds(), 3600, delta=30)
            with self.assertRaises(DwellError) as caught:
                client.reschedule("orders", "close-4713", key="order-4713", delay="1m", etag=message.etag)
            self.assertEqual(caught.exception.type, "precondition-failed")
            self.assertEqual(client.cancel("orders", "close-4713", key="order-4713").status, "cancelled")
            with self.assertRaises(DwellError) as caught:
                client.get("orders", "close-4713", key="order-4713")
            self.assertEqual((caught.exception.status, caught.exception.type), (404, "not-found"))
            with self.assertRaises(DwellError) as caught:
                client.push("orders", "x", delay="soon")
            self.assertEqual(caught.exception.problem["errors"][0]["pointer"], "/delay")
        finally:
            lab("/story/end")

    def test_payloads_arrive_as_they_were_pushed(self):
        self.payloads("restarts")

    def test_payloads_arrive_over_tls(self):
        self.payloads("tls")

    def test_asyncio_over_tls_and_unix_sockets(self):
        for story in ("tls", "restarts"):
            begun = lab("/story", name=story, messages=0)

            async def play():
                options = {"token_file": begun["token_file"], "ca_file": begun.get("ca_file")}
                async with AsyncClient(begun["server"], **options, retry_for=30) as client:
                    pushed = await asyncio.gather(*(client.push("orders", n, id=f"m-{n}", delay="1h") for n in range(50)))
                    found = [message.id async for message in client.list("orders", page_size=20)]
                    return sorted(result.id for result in pushed), sorted(found)

            try:
                pushed, found = asyncio.run(play())
                self.assertEqual((len(pushed), found), (50, pushed))
            finally:
                lab("/story/end")

    def payloads(self, story):
        client = self.begin(story)
        payloads = {"bytes": b"\x00\xff", "text": "käse", "json": [1, None, {"ä": "🧀"}], "null": None, "empty": ""}
        seen, is_done = {}, threading.Event()

        def handle(delivery):
            seen[delivery.id] = delivery.bytes if delivery.id == "bytes" else (
                delivery.json() if delivery.content_type == "application/json" else delivery.text)
            if len(seen) == len(payloads):
                is_done.set()

        worker = Worker(client, "orders", handler=handle)
        thread = threading.Thread(target=worker.run)
        try:
            for id, payload in payloads.items():
                client.push("orders", payload, id=id)
            thread.start()
            self.assertTrue(is_done.wait(30))
        finally:
            worker.stop()
            thread.join(30)
            lab("/story/end")
        self.assertEqual(seen, payloads)


if __name__ == "__main__":
    unittest.main()
