"""Measures Celery: peer.py push|drain|lateness|burst|idle. README.md, one folder up, says what is measured."""

import datetime
import json
import math
import multiprocessing
import os
import sys
import time
from ctypes import c_longlong
from multiprocessing.sharedctypes import RawArray

from celery import Celery, signals
from kombu.transport import redis

PAYLOAD_BYTES, PRODUCERS, WORKERS = 100, int(os.environ.get("CALLERS", 4)), 2
COUNT, LEAD_MS, RATE = (int(os.environ[name]) for name in ("COUNT", "LEAD_MS", "RATE"))

# What the workers saw, in memory that all processes share: number by number how late it came, ms, and how often.
lateness, deliveries = RawArray(c_longlong, COUNT), RawArray(c_longlong, COUNT)
# Worker by worker: how many it acked, and when the last of them, ms since 1970.
acked, ended = RawArray(c_longlong, WORKERS), RawArray(c_longlong, WORKERS)
# Which of the workers this process is.
this = 0

app = Celery("bench", broker=f"redis://127.0.0.1:{os.environ['REDIS_PORT']}/0")
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=0,  # without end
    worker_disable_rate_limits=True,
    worker_enable_remote_control=False,
    # Longer than any delay: a message that is waiting in a worker's memory is not acked.
    broker_transport_options={"visibility_timeout": 7_200},
)


class Counted(redis.QoS):
    """Counts acks where they are sent: a worker puts that off to its loop when a task has run."""

    def ack(self, delivery_tag):
        super().ack(delivery_tag)
        acked[this] += 1
        ended[this] = now_ms()


redis.Channel.QoS = Counted


@app.task(name="handle")
def handle(payload):
    due, number = map(int, payload.split()[:2])
    lateness[number] = now_ms() - due
    deliveries[number] += 1


def now_ms():
    return time.time_ns() // 1_000_000


def push(count, due):
    """Pushes so many, each due when `due` says; the payload says when, and which one it is. Seconds it took."""
    turn = multiprocessing.Barrier(PRODUCERS + 1)
    for first in range(PRODUCERS):
        multiprocessing.Process(target=produce, args=(turn, range(first, count, PRODUCERS), due), daemon=True).start()
    turn.wait()
    began = time.monotonic()
    turn.wait()
    return time.monotonic() - began


def produce(turn, numbers, due):
    try:
        with app.producer_pool.acquire() as producer:
            producer.connection.ensure_connection()
            turn.wait()
            for number in numbers:
                at = due(number)
                eta = datetime.datetime.fromtimestamp(at / 1_000, datetime.timezone.utc) if at > now_ms() else None
                payload = f"{at} {number}".ljust(PAYLOAD_BYTES)
                handle.apply_async((payload,), eta=eta, producer=producer, argsrepr="", kwargsrepr="")
        turn.wait()
    except BaseException:
        turn.abort()
        raise


def start_workers():
    """Returns when all have connected, and have taken nothing yet."""
    turn = multiprocessing.Barrier(WORKERS + 1)
    workers = [multiprocessing.Process(target=work, args=(turn, number), daemon=True) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    turn.wait()
    return workers


def work(turn, number):
    global this
    this = number
    signals.worker_ready.connect(lambda **_: turn.wait(), weak=False)
    # One thread runs the tasks. With the pool `solo` nothing wakes the worker's loop when tasks with an eta have run,
    # and it runs 10 of them a second.
    alone = {"without_gossip": True, "without_mingle": True, "without_heartbeat": True}
    quiet = {"loglevel": "ERROR", "quiet": True}
    try:
        app.Worker(pool="threads", concurrency=1, hostname=f"worker-{number}", **quiet, **alone).start()
    finally:
        turn.abort()


def consume(workers, count):
    """Returns when so many are acked."""
    while sum(acked) < count:
        if not all(worker.is_alive() for worker in workers):
            sys.exit("a worker has ended")
        time.sleep(0.002)


def say(**result):
    came = sorted(late for late, times in zip(lateness, deliveries) if times)
    early = sum(late < 0 for late in came)
    if "lateness_ms" in result:
        result["lateness_ms"] = {f"p{p}": came[max(0, math.ceil(len(came) * p / 100) - 1)] for p in (50, 99, 99.9)}
    print(json.dumps({**result, "distinct": len(came), "repeated": sum(deliveries) - len(came), "early": early}))


def ahead(due_after_first):
    """Pushes everything before the first is due, while the workers take; returns when all are acked."""
    workers = start_workers()
    first = now_ms() + LEAD_MS
    push(COUNT, lambda number: first + due_after_first(number))
    if now_ms() >= first:
        sys.exit("the pushes took longer than the lead")
    consume(workers, COUNT)
    return first


def main(measure):
    if measure == "push":
        in_an_hour = now_ms() + 3_600_000
        print(json.dumps({"push_per_s": round(COUNT / push(COUNT, lambda _: in_an_hour))}))
    elif measure == "drain":
        now = now_ms()
        push(COUNT, lambda _: now)
        workers = start_workers()
        began = now_ms()
        consume(workers, COUNT)
        say(drain_per_s=COUNT * 1_000 // (max(ended) - began))
    elif measure == "lateness":
        ahead(lambda number: number * 1_000 // RATE)
        say(lateness_ms=None)
    elif measure == "burst":
        due = ahead(lambda _: 0)
        say(burst_s=(max(ended) - due) / 1_000)
    elif measure == "idle":
        workers = start_workers()
        push(1, lambda _: 0)
        consume(workers, 1)
        print("ready", flush=True)
        consume(workers, 2)
    else:
        sys.exit(f"no measure {measure!r}")


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    try:
        main(sys.argv[1])
    finally:
        # Told to end, a worker would end what it has first.
        for child in multiprocessing.active_children():
            child.kill()
