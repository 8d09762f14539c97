"""A test of 30 days that takes milliseconds: python3 -m pytest clock_test.py. DWELL_BIN names the broker, or PATH has it."""

from dwell import Delivery, Worker
from dwell.testing import Broker


def test_a_reminder_of_30_days(dwell: Broker) -> None:
    dwell.client.push("reminders", "renew", id="renew", delay="30d")
    assert dwell.advance("29d").due == []
    assert dwell.advance("1d").due[0]["messages"] == 1
    seen: list[str] = []

    def remind(delivery: Delivery) -> None:
        seen.append(delivery.text)
        worker.stop()

    worker = Worker(dwell.client, "reminders", handler=remind)
    worker.run()
    assert seen == ["renew"]
