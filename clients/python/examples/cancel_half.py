"""Pushes messages, and cancels those of every other customer."""

import asyncio

from dwell import AsyncClient, DwellError, NewMessage


async def main() -> None:
    async with AsyncClient() as dwell:
        messages = [NewMessage({"customer": n}, id=f"offer-{n}", key=f"customer-{n}", delay="7d") for n in range(1000)]
        await dwell.push_many("offers", messages)
        outcomes = await dwell.cancel_many("offers", messages[::2])
        failed = [outcome for outcome in outcomes if isinstance(outcome, DwellError)]
        print("cancelled", len(outcomes) - len(failed), "messages", flush=True)
        waiting = [message.key async for message in dwell.list("offers", page_size=100)]
        print("left", len(waiting), "messages", flush=True)
        topic = await dwell.topic("offers")
        print("scheduled", topic.totals[0].scheduled, "messages", flush=True)


asyncio.run(main())
