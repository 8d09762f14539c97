"""Months of messages in milliseconds, on a broker whose time the tests move."""

import queue
import threading
import time
import unittest
from datetime import datetime, timezone

from dwell import Retry, Worker
from dwell.testing import broker


class Clock(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = broker()
        cls.broker = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def setUp(self):
        self.began = time.monotonic()
        self.deliveries = queue.Queue()

    def consume(self, topic, outcome=lambda delivery: None):
        """A worker that handles messages until the test is over."""

        def handle(delivery):
            try:
                outcome(delivery)
            finally:
                self.deliveries.put((delivery.id, delivery.attempt))

        worker = Worker(self.broker.client, topic, handler=handle)
        thread = threading.Thread(target=worker.run)
        thread.start()
        self.addCleanup(thread.join, 30)
        self.addCleanup(worker.stop)
        return worker

    def report(self):
        took = time.monotonic() - self.began
        print(f"python {self.id().rsplit('.', 1)[-1]}: {took * 1000:.0f} ms")

    def test_a_reminder_of_30_days(self):
        self.broker.client.push("reminders", "renew", id="renew", delay="30d")
        self.assertEqual(self.broker.advance("29d").due, [])
        moved = self.broker.advance("1d")
        self.assertEqual(moved.due, [{"topic": "reminders", "group": "default", "messages": 1}])
        self.consume("reminders")
        self.assertEqual(self.deliveries.get(timeout=30), ("renew", 1))
        self.report()

    def test_a_ladder_of_retries_over_three_hours(self):
        self.broker.client.create_topic("payments", backoff={"kind": "ladder", "steps": ["30m", "1h", "90m"]})

        def fails(delivery):
            if delivery.attempt < 4:
                raise Retry("no answer of the bank")

        worker = self.consume("payments", fails)
        self.broker.client.push("payments", "pay", id="pay")
        for attempt, step in enumerate(["30m", "1h", "90m", "0s"], 1):
            self.assertEqual(self.deliveries.get(timeout=30), ("pay", attempt))
            # The worker's decision is with the broker a few milliseconds after the handler has ended.
            until = time.monotonic() + 30
            while worker.stats.acked + worker.stats.nacked < attempt and time.monotonic() < until:
                time.sleep(0.001)
            self.broker.advance(step)
        self.assertTrue(self.deliveries.empty())
        self.report()

    def test_a_cron_job_of_next_march(self):
        self.broker.client.put_cron("reports", "spring", "report", cron="0 9 1 3 *", time_zone="Europe/Berlin")
        now = self.broker.now()
        march = datetime(now.year + 1, 3, 1, 8, tzinfo=timezone.utc)
        self.consume("reports")
        moved = self.broker.advance_to(march)
        self.assertEqual(moved.fired[0]["name"], "spring")
        self.assertGreaterEqual(moved.now, march)
        self.assertEqual(self.deliveries.get(timeout=30)[1], 1)
        self.report()
