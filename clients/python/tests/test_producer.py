"""Producers under pressure, on a real broker: small buffers, many callers, and callers that give up."""

import asyncio
import concurrent.futures
import random
import threading
import unittest

from dwell import AsyncClient, AsyncProducer, Producer
from dwell.testing import broker

CALLERS, EACH = 32, 40


class Pressure(unittest.TestCase):
    def setUp(self):
        context = broker()
        self.broker = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.options = {"buffer_messages": 5, "batch_messages": 3, "batches_in_flight": 2}

    def is_settled(self, producer, results):
        """Nothing is held any more, and all that has a result is with the broker."""
        self.assertEqual((producer._buffer.messages, producer._buffer.bytes, len(producer._open)), (0, 0, 0))
        stored = {message.id for topic in ("a", "b") for message in self.broker.client.list(topic)}
        self.assertEqual([result.status for result in results], ["stored"] * len(results))
        self.assertLessEqual({result.id for result in results}, stored)
        return stored

    def test_threads_with_a_small_buffer(self):
        results, cancelled, lock = [], set(), threading.Lock()
        producer = Producer(self.broker.client, **self.options)

        def call(caller):
            rolls = random.Random(caller)
            for n in range(EACH):
                id = f"{caller}-{n}"
                future = producer.submit("ab"[n % 2], n, id=id, delay="1h")
                if rolls.random() < 0.2 and future.cancel():
                    with lock:
                        cancelled.add(id)
                else:
                    with lock:
                        results.append(future.result(60))

        threads = [threading.Thread(target=call, args=(caller,)) for caller in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        producer.close()
        self.assertEqual(len(results) + len(cancelled), CALLERS * EACH)
        self.assertEqual(self.is_settled(producer, results) & cancelled, set())

    def test_tasks_with_a_small_buffer(self):
        results, cancelled = [], 0

        async def call(producer, caller):
            nonlocal cancelled
            rolls = random.Random(caller)
            for n in range(EACH):
                push = asyncio.create_task(producer.push("ab"[n % 2], n, id=f"{caller}-{n}", delay="1h"))
                await asyncio.sleep(0)
                if rolls.random() < 0.2:
                    await asyncio.sleep(rolls.random() * 0.01)
                    push.cancel()
                try:
                    results.append(await push)
                except asyncio.CancelledError:
                    cancelled += 1

        async def play():
            async with AsyncClient(self.broker.server) as client:
                async with AsyncProducer(client, **self.options) as producer:
                    await asyncio.wait_for(asyncio.gather(*(call(producer, caller) for caller in range(CALLERS))), 60)
                return producer

        self.is_settled(asyncio.run(play()), results)
        self.assertEqual(len(results) + cancelled, CALLERS * EACH)

    def test_what_was_submitted_is_sent_before_a_program_ends(self):
        import subprocess
        import sys

        program = "from dwell import Client, Producer\n" \
            f"producer = Producer(Client({self.broker.server!r}), linger='10s')\n" \
            "futures = [producer.submit('a', n, id=f'm-{n}', delay='1h') for n in range(100)]\n"
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
        self.assertEqual(self.broker.client.topic("a").totals[0].scheduled, 100)

    def test_timeouts_are_those_of_the_language(self):
        with Producer(self.broker.client, linger="10s", buffer_messages=1) as producer:
            future = producer.submit("a", "x")
            with self.assertRaises(TimeoutError):
                producer.push("a", "y", timeout=0.05)
            with self.assertRaises(TimeoutError):
                producer.flush(0)
            producer.flush()
            self.assertEqual(future.result(0).status, "stored")
        with self.assertRaises(RuntimeError):
            producer.push("a", "z")
        self.assertTrue(concurrent.futures.wait([future], 0).done)


if __name__ == "__main__":
    unittest.main()
