"""A push carries the context of the current span of OpenTelemetry."""

import asyncio
import threading
import unittest

from dwell import AsyncClient, Client, NewMessage, Producer, Worker
from lab import lab
from opentelemetry.sdk.trace import TracerProvider


class Trace(unittest.TestCase):
    def test_pushes_carry_the_current_span(self):
        server = lab("/story", name="calm", messages=0)["server"]
        client = Client(server)
        tracer = TracerProvider().get_tracer("test")
        seen, is_done = {}, threading.Event()

        def handle(delivery):
            seen[delivery.id] = delivery.traceparent
            if len(seen) == 5:
                is_done.set()

        worker = Worker(client, "orders", handler=handle)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            with tracer.start_as_current_span("checkout") as span:
                client.push("orders", "x", id="one")
                client.push_many("orders", [NewMessage("x", id="many")])

                with Producer(client) as producer:
                    producer.push("orders", "x", id="gathered")

                async def push():
                    async with AsyncClient(server) as client:
                        await client.push("orders", "x", id="async")

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
        self.assertEqual(seen, {"one": expected, "many": expected, "gathered": expected, "async": expected, "none": None})
