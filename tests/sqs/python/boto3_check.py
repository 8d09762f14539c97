"""boto3 against a broker: standard queues, dead letters, FIFO, errors. Exits 1 at the first difference."""

import os
import threading
import time
import uuid

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = os.environ["SQS_ENDPOINT"]
sqs = boto3.client("sqs", endpoint_url=ENDPOINT, config=Config(retries={"max_attempts": 3}))


def fresh(name):
    return f"{name}-{uuid.uuid4().hex[:8]}"


def code_of(call):
    try:
        call()
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


def receive(url, most=10, wait=5, **more):
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, WaitTimeSeconds=wait, **more)
    assert answer.get("Messages") != [], "an empty list has to be absent"
    return answer.get("Messages", [])


def receive_all(url, count, within=20, **more):
    found, until = [], time.monotonic() + within
    while len(found) < count and time.monotonic() < until:
        found += receive(url, wait=1, **more)
    assert len(found) == count, f"{len(found)} of {count} messages"
    return found


def counts(url):
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return tuple(int(found[name]) for name in names)


def eventually(check, within=20):
    until = time.monotonic() + within
    while not check():
        assert time.monotonic() < until, f"{check.__doc__ or check} did not happen within {within} s"
        time.sleep(0.05)


def a_queue_is_created_found_listed_and_deleted():
    name = fresh("orders")
    url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "20"}, tags={"team": "shop"})["QueueUrl"]
    assert url.endswith(f"/{name}"), url
    assert sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "20"})["QueueUrl"] == url
    taken = lambda: sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "21"})
    assert code_of(taken) in ("QueueAlreadyExists", "QueueNameExists")
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert sqs.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=fresh("nobody"))
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "20" and attributes["QueueArn"].endswith(f":{name}"), attributes
    assert "RedrivePolicy" not in attributes and "ReceiveMessageWaitTimeSeconds" in attributes
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "25", "DelaySeconds": "0"})
    changed = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    assert changed == {"VisibilityTimeout": "25"}, changed
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "shop"}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team"])
    sqs.tag_queue(QueueUrl=url, Tags={"stage": "test"})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "test"}
    sqs.delete_queue(QueueUrl=url)
    assert code_of(lambda: sqs.get_queue_url(QueueName=name)) in ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
    try:
        sqs.send_message(QueueUrl=url, MessageBody="x")
    except sqs.exceptions.QueueDoesNotExist:
        pass


def lists_of_queues_have_pages():
    prefix = fresh("page")
    urls = {sqs.create_queue(QueueName=f"{prefix}-{n}")["QueueUrl"] for n in range(7)}
    pages = list(sqs.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, PaginationConfig={"PageSize": 3}))
    assert len(pages) == 3 and {url for page in pages for url in page["QueueUrls"]} == urls


def a_message_keeps_its_attributes():
    url = sqs.create_queue(QueueName=fresh("attributes"))["QueueUrl"]
    attributes = {
        "Text": {"DataType": "String", "StringValue": "grüße"},
        "Count": {"DataType": "Number.int", "StringValue": "42"},
        "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    }
    body = 'a "body" with <tags> & \t\r\n 🚀'
    sent = sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes, MessageSystemAttributes={
        "AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}})
    uuid.UUID(sent["MessageId"])
    [found] = receive(url, MessageAttributeNames=["All"], AttributeNames=["All"])
    assert found["Body"] == body and found["MessageId"] == sent["MessageId"]
    assert found["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert found["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert found["MessageAttributes"] == attributes
    system = found["Attributes"]
    assert system["ApproximateReceiveCount"] == "1" and system["AWSTraceHeader"].startswith("Root=")
    assert abs(int(system["SentTimestamp"]) / 1000 - time.time()) < 60
    assert int(system["ApproximateFirstReceiveTimestamp"]) >= int(system["SentTimestamp"])
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"], VisibilityTimeout=0)
    [again] = receive(url)
    assert "MessageAttributes" not in again and "Attributes" not in again and "MD5OfMessageAttributes" not in again
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"], VisibilityTimeout=0)
    [named] = receive(url, MessageAttributeNames=["Te.*", "Count"], AttributeNames=["ApproximateReceiveCount"])
    assert set(named["MessageAttributes"]) == {"Count"} or set(named["MessageAttributes"]) == {"Text", "Count"}
    assert named["Attributes"] == {"ApproximateReceiveCount": "3"}
    sqs.delete_message(QueueUrl=url, ReceiptHandle=named["ReceiptHandle"])
    assert counts(url) == (0, 0, 0)


def a_delay_is_kept_and_may_be_longer_than_fifteen_minutes():
    url = sqs.create_queue(QueueName=fresh("delay"))["QueueUrl"]
    began = time.monotonic()
    sqs.send_message(QueueUrl=url, MessageBody="soon", DelaySeconds=2)
    sqs.send_message(QueueUrl=url, MessageBody="in a month", DelaySeconds=30 * 86_400)
    assert counts(url) == (0, 2, 0)
    [found] = receive(url, wait=10)
    passed = time.monotonic() - began
    assert found["Body"] == "soon" and 2.0 <= passed < 5.0, passed
    sqs.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
    sqs.purge_queue(QueueUrl=url)
    eventually(lambda: counts(url) == (0, 0, 0))


def batches_fail_in_part():
    url = sqs.create_queue(QueueName=fresh("batch"))["QueueUrl"]
    entries = [{"Id": str(n), "MessageBody": f"m{n}"} for n in range(9)]
    entries.append({"Id": "bad", "MessageBody": "\u0000"})
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert len(sent["Successful"]) == 9 and [bad["Id"] for bad in sent["Failed"]] == ["bad"], sent
    assert sent["Failed"][0]["SenderFault"] is True
    found = receive_all(url, 9)
    changed = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[
        {"Id": "a", "ReceiptHandle": found[0]["ReceiptHandle"], "VisibilityTimeout": 60},
        {"Id": "b", "ReceiptHandle": found[1]["ReceiptHandle"], "VisibilityTimeout": 60}])
    assert len(changed["Successful"]) == 2
    gone = sqs.delete_message_batch(QueueUrl=url, Entries=[
        {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(found)])
    assert len(gone["Successful"]) == 9 and "Failed" not in gone
    assert counts(url) == (0, 0, 0)
    empty = lambda: sqs.send_message_batch(QueueUrl=url, Entries=[])
    assert code_of(empty) == "AWS.SimpleQueueService.EmptyBatchRequest", code_of(empty)
    eleven = [{"Id": str(n), "MessageBody": "x"} for n in range(11)]
    many = lambda: sqs.send_message_batch(QueueUrl=url, Entries=eleven)
    assert code_of(many) == "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", code_of(many)
    same = lambda: sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "x"}] * 2)
    assert code_of(same) == "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", code_of(same)


def a_late_delete_counts():
    url = sqs.create_queue(QueueName=fresh("late"), Attributes={"VisibilityTimeout": "1"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="slow")
    [found] = receive(url)
    eventually(lambda: counts(url) == (1, 0, 0))
    sqs.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
    assert receive(url, wait=2) == [] and counts(url) == (0, 0, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])


def a_message_comes_again_until_it_is_deleted():
    url = sqs.create_queue(QueueName=fresh("again"), Attributes={"VisibilityTimeout": "1"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="again")
    for attempt in range(1, 4):
        [found] = receive(url, AttributeNames=["ApproximateReceiveCount"])
        assert found["Attributes"]["ApproximateReceiveCount"] == str(attempt)
    [found] = receive(url, VisibilityTimeout=30)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"], VisibilityTimeout=0)
    [found] = receive(url, wait=1)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])


def a_failed_message_goes_to_the_dead_letter_queue_and_back():
    dead = sqs.create_queue(QueueName=fresh("dead"))["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = '{"deadLetterTargetArn":"%s","maxReceiveCount":"2"}' % arn
    url = sqs.create_queue(QueueName=fresh("work"), Attributes={"VisibilityTimeout": "1", "RedrivePolicy": policy})["QueueUrl"]
    source = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes={
        "k": {"DataType": "String", "StringValue": "v"}})
    for _ in range(2):
        assert len(receive(url)) == 1
    [found] = receive_all(dead, 1, MessageAttributeNames=["All"], AttributeNames=["All"])
    assert found["MessageId"] == sent["MessageId"] and found["MessageAttributes"]["k"]["StringValue"] == "v"
    assert found["Attributes"]["DeadLetterQueueSourceArn"] == source, found
    assert int(found["Attributes"]["ApproximateReceiveCount"]) >= 1
    sqs.change_message_visibility(QueueUrl=dead, ReceiptHandle=found["ReceiptHandle"], VisibilityTimeout=0)
    handle = sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]
    assert handle
    [back] = receive_all(url, 1)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=back["ReceiptHandle"])
    results = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    assert results and results[0]["Status"] in ("COMPLETED", "RUNNING"), results


def a_fifo_queue_keeps_order_and_takes_each_once():
    name = fresh("ledger") + ".fifo"
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"})["QueueUrl"]
    first = sqs.send_message(QueueUrl=url, MessageBody="m0", MessageGroupId="g")
    same = sqs.send_message(QueueUrl=url, MessageBody="m0", MessageGroupId="g")
    assert same["MessageId"] == first["MessageId"] and same["SequenceNumber"] == first["SequenceNumber"]
    sent = [first] + [sqs.send_message(QueueUrl=url, MessageBody=f"m{n}", MessageGroupId="g") for n in range(1, 12)]
    sequence = [int(answer["SequenceNumber"]) for answer in sent]
    assert sequence == sorted(set(sequence)), sequence
    taken = receive(url, AttributeNames=["All"])
    assert [message["Body"] for message in taken] == [f"m{n}" for n in range(len(taken))] and len(taken) == 10
    assert taken[0]["Attributes"]["MessageGroupId"] == "g" and taken[0]["Attributes"]["SequenceNumber"] == first["SequenceNumber"]
    assert receive(url, wait=1) == [], "a group in flight waits"
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=taken[0]["ReceiptHandle"], VisibilityTimeout=0)
    for message in taken[1:]:
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    seen = []
    while len(seen) < 12:
        batch = receive(url)
        assert batch, seen
        for message in batch:
            seen.append(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert seen == [f"m{n}" for n in range(12)], seen
    assert code_of(lambda: sqs.send_message(QueueUrl=url, MessageBody="x")) == "MissingParameter"
    wrong = lambda: sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", DelaySeconds=2)
    assert code_of(wrong) == "InvalidParameterValue"
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", DelaySeconds=0)


def wrong_requests_have_the_codes_of_aws():
    url = sqs.create_queue(QueueName=fresh("wrong"))["QueueUrl"]
    delete = lambda handle: code_of(lambda: sqs.delete_message(QueueUrl=url, ReceiptHandle=handle))
    assert delete("garbage") == "ReceiptHandleIsInvalid", delete("garbage")
    assert code_of(lambda: sqs.create_queue(QueueName="no spaces please")) == "InvalidParameterValue"
    most = lambda: sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=11)
    assert code_of(most) in ("InvalidParameterValue", "ReadCountOutOfRange"), code_of(most)
    assert code_of(lambda: sqs.receive_message(QueueUrl=url, WaitTimeSeconds=21)) == "InvalidParameterValue"
    assert code_of(lambda: sqs.send_message(QueueUrl=url, MessageBody="\u0001")) == "InvalidMessageContents"
    large = lambda: sqs.send_message(QueueUrl=url, MessageBody="x" * (1024 * 1024 + 1))
    assert code_of(large) == "InvalidParameterValue", code_of(large)
    sqs.send_message(QueueUrl=url, MessageBody="x" * (1024 * 1024))
    unknown = lambda: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Nonsense"])
    assert code_of(unknown) == "InvalidAttributeName", code_of(unknown)


def many_senders_and_receivers_lose_nothing():
    url = sqs.create_queue(QueueName=fresh("many"))["QueueUrl"]
    total, seen, lock = int(os.environ.get("MESSAGES", "2000")), [], threading.Lock()

    def send(part):
        for at in range(part, total, 40):
            entries = [{"Id": str(n), "MessageBody": str(at + 4 * n)} for n in range(10) if at + 4 * n < total]
            assert "Failed" not in sqs.send_message_batch(QueueUrl=url, Entries=entries)

    def take():
        while True:
            with lock:
                if len(set(seen)) >= total:
                    return
            found = receive(url, wait=1)
            if found:
                entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(found)]
                assert "Failed" not in sqs.delete_message_batch(QueueUrl=url, Entries=entries)
                with lock:
                    seen.extend(int(message["Body"]) for message in found)

    began = time.monotonic()
    threads = [threading.Thread(target=send, args=(part,)) for part in range(4)]
    threads += [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert sorted(set(seen)) == list(range(total)), f"{len(set(seen))} of {total}"
    print(f"  {total} messages sent, received and deleted in {time.monotonic() - began:.1f} s, {len(seen) - total} twice")


CHECKS = [
    a_queue_is_created_found_listed_and_deleted, lists_of_queues_have_pages, a_message_keeps_its_attributes,
    a_delay_is_kept_and_may_be_longer_than_fifteen_minutes, batches_fail_in_part, a_late_delete_counts,
    a_message_comes_again_until_it_is_deleted, a_failed_message_goes_to_the_dead_letter_queue_and_back,
    a_fifo_queue_keeps_order_and_takes_each_once, wrong_requests_have_the_codes_of_aws,
    many_senders_and_receivers_lose_nothing,
]

if __name__ == "__main__":
    import sys
    import traceback

    failed = 0
    for check in CHECKS:
        if len(sys.argv) > 1 and sys.argv[1] not in check.__name__:
            continue
        try:
            check()
            print(f"boto3: {check.__name__} ... ok", flush=True)
        except Exception:
            failed += 1
            print(f"boto3: {check.__name__} ... FAILED", flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)
