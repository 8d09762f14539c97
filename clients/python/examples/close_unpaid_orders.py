"""Close unpaid orders, with asyncio: a customer has some time to pay, and then the shop closes the order."""

import asyncio
import os
import signal

from dwell import AsyncClient, Delivery, DwellError, Worker

PAY_WITHIN = os.environ.get("PAY_WITHIN", "30m")

dwell = AsyncClient()
worker = Worker(dwell, "orders", concurrency=8)
orders: dict[int, str] = {}  # stands for the database


async def checkout(order: int) -> None:
    orders[order] = "unpaid"
    # The id and the key are made of the order, so a repeated checkout pushes nothing new.
    await dwell.push("orders", {"order": order}, id=f"close-{order}", key=f"order-{order}", delay=PAY_WITHIN)


async def pay(order: int) -> bool:
    if orders[order] != "unpaid":
        return False
    orders[order] = "paid"
    print("paid order", order, flush=True)
    try:
        await dwell.cancel("orders", f"close-{order}", key=f"order-{order}")
    except DwellError as error:
        # The message is being delivered: close() finds that the order is paid.
        if error.type not in ("conflict", "not-found"):
            raise
    return True


@worker.handle
async def close(delivery: Delivery) -> None:
    order = delivery.json()["order"]
    # UPDATE orders SET state = 'closed' WHERE id = order AND state = 'unpaid'
    if orders.get(order) == "unpaid":
        orders[order] = "closed"
        print("closed order", order, flush=True)


async def main() -> None:
    work = asyncio.create_task(worker.run_async())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.stop)
    async with dwell:
        for order in (4711, 4712):
            await checkout(order)
        await pay(4711)
        await work


asyncio.run(main())
