"""A worker that fails: some messages succeed at the second attempt, some are buried, and one fails every time."""

from dwell import Bury, Client, Delivery, Retry, Worker

dwell = Client()
dwell.create_topic("mail", partitions=1, max_attempts=3, backoff={"kind": "ladder", "steps": ["100ms"]})
for to in ("ada@example.com", "bob@nowhere", "eve@example.com"):
    dwell.push("mail", {"to": to}, id=to)

worker = Worker(dwell, "mail")


@worker.handle
def send(delivery: Delivery) -> None:
    to = delivery.json()["to"]
    if to == "bob@nowhere":
        raise Bury("unknown domain")
    if to == "eve@example.com":
        raise ConnectionError("smtp: 554")
    if delivery.attempt == 1:
        raise Retry("smtp: 421", after="200ms")
    print("sent to", to, "at attempt", delivery.attempt, flush=True)


def stop_at_the_end(event: str, delivery: Delivery | None) -> None:
    if worker.stats.acked + worker.stats.buried == 3:
        worker.stop()


worker.on_event = stop_at_the_end
worker.run()
for letter in dwell.dead_letters("mail", order="oldest"):
    error = letter.last_error
    print(letter.id, letter.reason, error and error.class_, error and error.message, flush=True)
print("redriven", dwell.redrive("mail", reason="max_attempts").redriven, flush=True)
