"""Two brokers on one Redis behind one URL: what one hands out, the other deletes, and one of them is killed half-way.

Nothing is lost, and nothing is delivered again after its delete was answered.
"""

import os
import queue
import shlex
import subprocess
import threading
import time
import uuid

import boto3
from botocore.config import Config

MESSAGES = int(os.environ.get("MESSAGES", "5000"))
ENDPOINTS = os.environ["SQS_ENDPOINTS"].split(",")
# Sends half of them, if it is there: a command that takes a queue, the first number and the one after the last.
SENDER = os.environ.get("SQS_SENDER", "")
SENT_HERE = MESSAGES // 2 if SENDER else MESSAGES
KILL = os.environ["SQS_KILL"]  # a shell command that kills the second broker and starts it again


def client(endpoint):
    return boto3.client("sqs", endpoint_url=endpoint, config=Config(retries={"max_attempts": 10, "mode": "standard"}))


def patient(call):
    until = time.monotonic() + 60
    while True:
        try:
            return call()
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


name = f"two-{uuid.uuid4().hex[:8]}"
client(ENDPOINTS[0]).create_queue(QueueName=name, Attributes={"VisibilityTimeout": "20"})
lock, delivered_after_delete = threading.Lock(), []
deleted, deliveries, failures = set(), 0, []
# Few, so that none is older than the visibility timeout when it is used.
handles = queue.Queue(maxsize=100)
sent_all = threading.Event()


def guarded(work):
    def run(*arguments):
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001
            failures.append(repr(error))
    return run


@guarded
def send(part):
    sqs = client(ENDPOINTS[part % 2])
    url = patient(lambda: sqs.get_queue_url(QueueName=name))["QueueUrl"]
    for at in range(part * 10, SENT_HERE, 40):
        wanted = {str(n): str(at + n) for n in range(10) if at + n < SENT_HERE}
        while wanted:
            entries = [{"Id": key, "MessageBody": body} for key, body in wanted.items()]
            answer = patient(lambda: sqs.send_message_batch(QueueUrl=url, Entries=entries))
            for done in answer.get("Successful", []):
                del wanted[done["Id"]]


@guarded
def send_elsewhere():
    subprocess.run([*shlex.split(SENDER), name, str(SENT_HERE), str(MESSAGES)], check=True)


@guarded
def receive(part):
    global deliveries
    sqs = client(ENDPOINTS[part % 2])
    url = patient(lambda: sqs.get_queue_url(QueueName=name))["QueueUrl"]
    while len(deleted) < MESSAGES and not failures:
        began = time.monotonic()
        answer = patient(lambda: sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1))
        for message in answer.get("Messages", []):
            with lock:
                deliveries += 1
                if message["Body"] in deleted and answered[message["Body"]] < began:
                    delivered_after_delete.append(message["Body"])
            while not failures:
                try:
                    handles.put((part, message["Body"], message["ReceiptHandle"]), timeout=1)
                    break
                except queue.Full:
                    pass


answered = {}


@guarded
def delete(part):
    clients = [client(endpoint) for endpoint in ENDPOINTS]
    urls = [patient(lambda: sqs.get_queue_url(QueueName=name))["QueueUrl"] for sqs in clients]
    while len(deleted) < MESSAGES and not failures:
        try:
            taken, body, handle = handles.get(timeout=0.2)
        except queue.Empty:
            continue
        there = 1 - taken % 2  # at the broker that did not hand it out
        patient(lambda: clients[there].delete_message(QueueUrl=urls[there], ReceiptHandle=handle))
        with lock:
            deleted.add(body)
            answered.setdefault(body, time.monotonic())


threads = [threading.Thread(target=send, args=(part,)) for part in range(4)]
threads += [threading.Thread(target=send_elsewhere)] if SENDER else []
threads += [threading.Thread(target=receive, args=(part,)) for part in range(4)]
threads += [threading.Thread(target=delete, args=(part,)) for part in range(4)]
began = time.monotonic()
for thread in threads:
    thread.start()
while len(deleted) < MESSAGES // 2 and not failures:
    assert time.monotonic() < began + 600, f"{len(deleted)} of {MESSAGES}"
    time.sleep(0.05)
subprocess.run(KILL, shell=True, check=True)
for thread in threads:
    thread.join(600)
assert not failures, failures
assert len(deleted) == MESSAGES, f"{len(deleted)} of {MESSAGES}"
assert not delivered_after_delete, f"{len(delivered_after_delete)} came again after their delete was answered"
print(f"two brokers, one killed: {MESSAGES} messages, {MESSAGES - SENT_HERE} of them sent by Java, "
      f"{deliveries} deliveries, 0 lost, 0 again after their delete ... ok")
