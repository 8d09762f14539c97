"""Celery with a worker: a task, a retry, and one whose ETA lies beyond the visibility timeout, which runs once."""

import collections
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid

directory = tempfile.mkdtemp()
os.environ.update(CELERY_QUEUE=f"celery-{uuid.uuid4().hex[:8]}", CELERY_LOG=os.path.join(directory, "runs"))
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import celery_app  # noqa: E402

began = time.time()
celery_app.plain.delay("now")
celery_app.tried_again.delay("again")
celery_app.plain.apply_async(args=["later"], countdown=12)
worker = subprocess.Popen(
    [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--concurrency", "2", "--loglevel", "WARNING",
     "--without-gossip", "--without-mingle"], cwd=here)


def runs():
    found = collections.defaultdict(list)
    if os.path.exists(os.environ["CELERY_LOG"]):
        for line in open(os.environ["CELERY_LOG"]):
            name, at = line.split()
            found[name].append(float(at))
    return found


try:
    while not (len(runs()["later"]) >= 1 and len(runs()["again"]) >= 3 and time.time() > began + 20):
        assert time.time() < began + 120, dict(runs())
        time.sleep(0.2)
    found = runs()
    assert len(found["now"]) == 1 and len(found["again"]) == 3, dict(found)
    late = found["later"][0] - began - 12
    assert late > -0.1, late
    assert len(found["later"]) == 1, f"the task ran {len(found['later'])} times"
    print(f"celery: a task, its retries, and one in 12 s that ran once, {late:.1f} s late ... ok")
finally:
    worker.send_signal(signal.SIGTERM)
    worker.wait(60)
