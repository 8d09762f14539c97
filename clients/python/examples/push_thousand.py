"""Pushes 1,000 messages from 20 threads. The producer gathers them into batches."""

from concurrent.futures import ThreadPoolExecutor

from dwell import Client, Producer, PushResult

with Client() as dwell, Producer(dwell) as producer, ThreadPoolExecutor(20) as threads:

    def remind(customer: int) -> PushResult:
        return producer.push("reminders", {"customer": customer}, id=f"remind-{customer}", delay="30d")

    results = list(threads.map(remind, range(1000)))
    print("stored", sum(result.status == "stored" for result in results), "messages", flush=True)
    # The ids are those of the first push, so a second one changes nothing.
    again = list(threads.map(remind, range(1000)))
    print("found", sum(result.status == "duplicate" for result in again), "duplicates", flush=True)
