"""A worker that is stopped while it works: what has begun is finished, and the rest is another worker's at once."""

import threading
import time

from dwell import Client, Delivery, Worker

dwell = Client()
for n in range(6):
    dwell.push("reports", n, id=f"report-{n}")

worker = Worker(dwell, "reports", concurrency=2, drain="10s")
both_begun = threading.Barrier(2)


@worker.handle
def write(delivery: Delivery) -> None:
    both_begun.wait(30)
    # SIGTERM does the same.
    worker.stop()
    time.sleep(0.5)
    print("written", delivery.id, flush=True)


worker.run()
stats = worker.stats
print("handled", stats.acked, "left", 6 - stats.acked, "in flight", stats.in_flight, flush=True)
# Nothing waits for a visibility timeout, and no attempt was counted.
attempts: list[int] = []
other = Worker(dwell, "reports", concurrency=1)


@other.handle
def rest(delivery: Delivery) -> None:
    attempts.append(delivery.attempt)
    if len(attempts) == 6 - stats.acked:
        other.stop()


other.run()
print("the rest at attempt", *sorted(set(attempts)), flush=True)
