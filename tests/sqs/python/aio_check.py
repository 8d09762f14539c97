"""aiobotocore against a broker: twenty tasks send, receive and delete at the same time."""

import asyncio
import os
import uuid

from aiobotocore.session import get_session


async def main():
    async with get_session().create_client("sqs", endpoint_url=os.environ["SQS_ENDPOINT"]) as sqs:
        name = f"aio-{uuid.uuid4().hex[:8]}"
        url = (await sqs.create_queue(QueueName=name))["QueueUrl"]
        bodies = {f"m{n}" for n in range(200)}
        await asyncio.gather(*(sqs.send_message(QueueUrl=url, MessageBody=body) for body in bodies))
        seen = set()

        async def take():
            while len(seen) < len(bodies):
                answer = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
                for message in answer.get("Messages", []):
                    seen.add(message["Body"])
                    await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

        await asyncio.wait_for(asyncio.gather(*(take() for _ in range(20))), 120)
        assert seen == bodies
    print("aiobotocore: 200 messages ... ok")


asyncio.run(main())
