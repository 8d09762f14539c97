"""Measures 32 callers in one run: single pushes, the same through a producer, and batches of 100; with threads and with asyncio.

    measure_pushes.py [SECONDS]         DWELL_SERVER names the broker

Prints how many times as many messages a second each way has as single pushes of threads.
"""

import asyncio
import sys
import threading
import time
from typing import Awaitable, Callable

from dwell import AsyncClient, AsyncProducer, Client, NewMessage, Producer

CALLERS = 32
TOPIC, PAYLOAD = "measured", "close order 4711"
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0


def rate(push: Callable[[], object], messages: int = 1) -> float:
    """Messages a second, pushed by all threads."""
    counts = [0] * CALLERS
    began = time.monotonic()

    def call(caller: int) -> None:
        while time.monotonic() < began + seconds:
            push()
            counts[caller] += messages

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - began)


async def async_rate(push: Callable[[], Awaitable[object]]) -> float:
    """Messages a second, pushed by all tasks."""
    began, count = time.monotonic(), 0

    async def call() -> None:
        nonlocal count
        while time.monotonic() < began + seconds:
            await push()
            count += 1

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return count / (time.monotonic() - began)


async def with_asyncio() -> tuple[float, float]:
    async with AsyncClient(retry_for=30) as dwell, AsyncProducer(dwell) as producer:
        single = await async_rate(lambda: dwell.push(TOPIC, PAYLOAD, delay="1h"))
        return single, await async_rate(lambda: producer.push(TOPIC, PAYLOAD, delay="1h"))


with Client(retry_for=30) as dwell, Producer(dwell) as producer:
    dwell.create_topic(TOPIC, partitions=8)
    single = rate(lambda: dwell.push(TOPIC, PAYLOAD, delay="1h"))
    gathered = rate(lambda: producer.push(TOPIC, PAYLOAD, delay="1h"))
    batches = rate(lambda: dwell.push_many(TOPIC, [NewMessage(PAYLOAD, delay="1h") for _ in range(100)]), 100)
    async_single, async_gathered = asyncio.run(with_asyncio())
    dwell.delete_topic(TOPIC)

print(f"threads: single pushes 1.0, producer {gathered / single:.1f}, batches of 100 {batches / single:.1f}")
print(f"asyncio: single pushes {async_single / single:.1f}, producer {async_gathered / single:.1f}", flush=True)
