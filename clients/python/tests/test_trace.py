"""A push carries the context of the current span of OpenTelemetry."""

import asyncio
import threading
import unittest

from dwell import Client, NewMessage, Worker
from lab import lab
from opentelemetry.sdk.trace import TracerProvider


class Trace(unittest.TestCase):
    def test_pushes_carry_the_current_span(self):
        client = Client(lab("/story", name="calm", messages=0)["server"])
        tracer = TracerProvider().get_tracer("test")
        seen, is_done = {}, threading.Event()

        def handle(delivery):
            seen[delivery.id] = delivery.traceparent
            if len(seen) == 4:
                is_done.set()

        worker = Worker(client, "orders", handler=handle)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            with tracer.start_as_current_span("checkout") as span:
                client.push("orders", "x", id="one")
                client.push_many("orders", [NewMessage("x", id="many")])

                async def push():
                    await asyncio.to_thread(client.push, "orders", "x", id="async")

                asyncio.run(push())
            client.push("orders", "x", id="none")
            self.assertTrue(is_done.wait(30))
        finally:
            worker.stop()
            thread.join(30)
            client.close()
            lab("/story/end")
        context = span.get_span_context()
        expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        self.assertEqual(seen, {"one": expected, "many": expected, "async": expected, "none": None})
