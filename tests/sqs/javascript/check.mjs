// The SDK of JavaScript against a broker, with sqs-consumer and sqs-producer. The endpoint comes from the environment.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import {
  CreateQueueCommand, DeleteMessageCommand, GetQueueUrlCommand, QueueDoesNotExist, ReceiveMessageCommand,
  SendMessageCommand, SQSClient,
} from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";
import { Producer } from "sqs-producer";

const sqs = new SQSClient({});
const fresh = (name) => `${name}-${randomUUID().slice(0, 8)}`;
const create = async (name, Attributes) =>
  (await sqs.send(new CreateQueueCommand({ QueueName: fresh(name), Attributes }))).QueueUrl;

async function attributesAndTypedErrors() {
  const QueueUrl = await create("js");
  const MessageAttributes = {
    Text: { DataType: "String", StringValue: "grüße" },
    Count: { DataType: "Number.int", StringValue: "42" },
    Bytes: { DataType: "Binary", BinaryValue: new Uint8Array([0, 1, 255]) },
  };
  await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody: "body 🚀", MessageAttributes }));
  const { Messages } = await sqs.send(new ReceiveMessageCommand({
    QueueUrl, WaitTimeSeconds: 5, MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["All"],
  }));
  assert.equal(Messages.length, 1);
  assert.equal(Messages[0].Body, "body 🚀");
  assert.deepEqual(Messages[0].MessageAttributes.Count, MessageAttributes.Count);
  await sqs.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: Messages[0].ReceiptHandle }));
  const empty = await sqs.send(new ReceiveMessageCommand({ QueueUrl }));
  assert.equal(empty.Messages, undefined);
  await assert.rejects(sqs.send(new GetQueueUrlCommand({ QueueName: fresh("nobody") })), QueueDoesNotExist);
  console.log("javascript: attributes and typed errors ... ok");
}

async function consumerWithHeartbeat() {
  const queueUrl = await create("consumer", { VisibilityTimeout: "6" });
  const bodies = Array.from({ length: 25 }, (_, n) => ({ id: `m${n}`, body: `${n}` }));
  await Producer.create({ queueUrl, sqs }).send(bodies);
  const seen = [];
  await new Promise((resolve, reject) => {
    const limit = setTimeout(() => reject(new Error(`${seen.length} of 25 messages`)), 90_000);
    const consumer = Consumer.create({
      queueUrl, sqs, batchSize: 10, visibilityTimeout: 6, heartbeatInterval: 2, waitTimeSeconds: 1,
      handleMessage: async (message) => {
        // One of them takes longer than the visibility timeout, and is extended meanwhile. It does not end with a
        // heartbeat: an extension of a message that is deleted is an error, as at AWS.
        if (message.Body === "7") await new Promise((done) => setTimeout(done, 9_000));
        seen.push(message.Body);
        if (new Set(seen).size === 25) {
          clearTimeout(limit);
          consumer.stop();
          resolve();
        }
        return message;
      },
    });
    for (const name of ["error", "processing_error", "timeout_error"]) consumer.on(name, reject);
    consumer.start();
  });
  assert.equal(seen.length, 25, `delivered ${seen.length} times`);
  console.log("javascript: sqs-producer, and sqs-consumer with heartbeats ... ok");
}

await attributesAndTypedErrors();
await consumerWithHeartbeat();
process.exit(0);
