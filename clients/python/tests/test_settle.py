"""Which decisions of a worker travel together."""

import unittest
from datetime import datetime, timezone

from dwell import Client, Worker
from dwell.delivery import Delivery
from dwell.worker import _Slot

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


class TestSettle(unittest.TestCase):
    def worker(self, *ids):
        """A worker with these deliveries, whose handlers run."""
        client = Client("http://127.0.0.1:1")
        self.addCleanup(client.close)
        worker = Worker(client, "orders")
        for id in ids:
            delivery = Delivery(id=id, receipt=id, attempt=1, partition=0, due_at=NOW, deadline=NOW, lateness_ms=0, payload=b"", meta={})
            worker._slots[id] = _Slot(delivery, 30.0, 1e9, 1e9, 1e9)
        return worker

    @staticmethod
    def decide(worker, verb, *ids):
        with worker._changed:
            for id in ids:
                worker._decide(worker._slots[id], verb)

    @staticmethod
    def sent(worker):
        """The verb and the receipts of the next request."""
        batch = worker._gathered()
        return [*{slot.decision[0] for slot in batch}, *(slot.delivery.receipt for slot in batch)]

    def test_a_decision_waits_for_no_other(self):
        worker = self.worker("a", "b")
        self.assertEqual(self.sent(worker), [])
        self.decide(worker, "ack", "a")
        self.assertEqual(self.sent(worker), ["ack", "a"])

    def test_a_request_has_one_verb_and_what_was_decided_first(self):
        worker = self.worker("a", "b", "c", "d")
        self.decide(worker, "release", "c")
        self.decide(worker, "ack", "b")
        self.decide(worker, "release", "a")
        self.assertEqual(self.sent(worker), ["release", "c", "a"])

    def test_a_request_has_at_most_a_hundred_decisions(self):
        ids = [f"{n:03}" for n in range(150)]
        worker = self.worker(*ids)
        self.decide(worker, "ack", *ids)
        self.assertEqual(self.sent(worker), ["ack", *ids[:100]])


if __name__ == "__main__":
    unittest.main()
