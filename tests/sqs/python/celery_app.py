"""A Celery application whose tasks write down when they ran."""

import os
import time

from celery import Celery
from urllib.parse import quote, urlsplit

endpoint = urlsplit(os.environ["SQS_ENDPOINT"])
key, secret = (quote(os.environ[name], safe="") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
app = Celery("shop", broker=f"sqs://{key}:{secret}@{endpoint.hostname}:{endpoint.port}")
app.conf.update(
    broker_transport_options={
        "is_secure": False, "region": "us-east-1", "visibility_timeout": 5, "wait_time_seconds": 5,
        "polling_interval": 0.1,
    },
    task_default_queue=os.environ["CELERY_QUEUE"],
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
)
LOG = os.environ["CELERY_LOG"]


def note(name):
    with open(LOG, "a") as log:
        log.write(f"{name} {time.time()}\n")


@app.task
def plain(name):
    note(name)


@app.task(bind=True, max_retries=2)
def tried_again(self, name):
    note(name)
    if self.request.retries < 2:
        raise self.retry(countdown=1)
