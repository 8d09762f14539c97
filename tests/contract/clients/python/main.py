"""The generated client pushes, reserves, streams, acks and cancels; fails when an answer is another than expected."""

import json
import os
from io import BytesIO

from dwell_client import AuthenticatedClient
from dwell_client.api.consuming import ack_messages, extend_messages, reserve_messages
from dwell_client.api.producing import cancel_message, push_message
from dwell_client.models import Ack, Delivery, Extend, Reserve
from dwell_client.types import File

TOPIC = "contract-python"
client = AuthenticatedClient(base_url=os.environ["CONTRACT_URL"], token=os.environ["CONTRACT_TOKEN"])

pushed = push_message.sync_detailed(
    TOPIC, client=client, body=File(BytesIO(b"close order 4711")), key="customer-7"
)
assert pushed.status_code == 201, pushed

reserved = reserve_messages.sync(TOPIC, "default", client=client, body=Reserve(max_=1, wait="5s"))
(delivery,) = reserved.deliveries
assert (delivery.id, delivery.payload) == (pushed.parsed.id, "close order 4711"), reserved

acked = ack_messages.sync(TOPIC, "default", client=client, body=Ack(receipts=[delivery.receipt]))
assert [result.status for result in acked.results] == ["acked"], acked
extend = Extend(receipts=[delivery.receipt], visibility_timeout="1m")
over = extend_messages.sync_detailed(TOPIC, "default", client=client, body=extend)
assert (over.status_code, over.parsed.reason) == (409, "already_settled"), over

# A stream does not end by itself, so it is read line by line.
push_message.sync_detailed(TOPIC, client=client, body=File(BytesIO(b"streamed")))
with client.get_httpx_client().stream("POST", f"/v1/topics/{TOPIC}/groups/default/stream") as lines:
    assert lines.headers["content-type"] == "application/x-ndjson", lines.headers
    received = filter(None, lines.iter_lines())
    delivery = Delivery.from_dict(json.loads(next(received)))
    assert delivery.payload == "streamed", delivery
    acked = ack_messages.sync(TOPIC, "default", client=client, body=Ack(receipts=[delivery.receipt]))
    assert acked.results[0].status == "acked", acked

later = push_message.sync_detailed(TOPIC, client=client, body=File(BytesIO(b"")), id="later", delay="1h")
assert later.status_code == 201, later
cancelled = cancel_message.sync_detailed(TOPIC, "later", client=client)
assert cancelled.status_code == 200 and cancelled.parsed.status == "cancelled", cancelled
absent = cancel_message.sync_detailed("absent", "later", client=client)
assert absent.status_code == 404 and absent.parsed.type_ == "urn:dwell:error:not-found", absent
print("python: pushed, reserved, streamed, acked, cancelled")
