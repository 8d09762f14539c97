"""Close unpaid orders, with FastAPI: uvicorn close_unpaid_orders_fastapi:app"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dwell import AsyncClient, Delivery, DwellError, Worker
from fastapi import FastAPI, HTTPException

PAY_WITHIN = os.environ.get("PAY_WITHIN", "30m")

dwell = AsyncClient()
worker = Worker(dwell, "orders", concurrency=8)
orders: dict[int, str] = {}  # stands for the database


@worker.handle
async def close(delivery: Delivery) -> None:
    order = delivery.json()["order"]
    if orders.get(order) == "unpaid":
        orders[order] = "closed"
        print("closed order", order, flush=True)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    work = asyncio.create_task(worker.run_async())
    async with dwell:
        yield
        worker.stop()
        await work


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}", status_code=201)
async def checkout(order: int) -> dict[str, str]:
    orders[order] = "unpaid"
    await dwell.push("orders", {"order": order}, id=f"close-{order}", key=f"order-{order}", delay=PAY_WITHIN)
    return {"state": "unpaid"}


@app.post("/orders/{order}/pay")
async def pay(order: int) -> dict[str, str]:
    if orders.get(order) != "unpaid":
        raise HTTPException(409, f"order {order} is {orders.get(order, 'unknown')}")
    orders[order] = "paid"
    print("paid order", order, flush=True)
    try:
        await dwell.cancel("orders", f"close-{order}", key=f"order-{order}")
    except DwellError as error:
        # The message is being delivered: close() finds that the order is paid.
        if error.type not in ("conflict", "not-found"):
            raise
    return {"state": "paid"}
