/** Batches of pushes. */

import type { RequestOptions, Transport } from "./http.js";
import type { PushResult } from "./messages.js";
import { fromAnswer, given, part } from "./values.js";

/** A batch has up to 1,000 messages and 8 MiB, of which some is left free. */
export const BATCH_MESSAGES = 1000;
/** Bytes of its messages, each with a comma. */
export const BATCH_BYTES = (7 << 20) - 32;
const TRANSIENT = new Set(["full", "unavailable", "outcome-unknown"].map((name) => `urn:dwell:error:${name}`));

/** Whether a message was not stored for a reason that may pass. */
export const isTransient = ({ error }: PushResult): boolean => TRANSIENT.has(error?.type ?? "");

/** Pushes messages that are encoded. Resolves to a result for each. */
export async function sendBatch(transport: Transport, topic: string, texts: string[], options: RequestOptions): Promise<PushResult[]> {
  const path = `/v1/topics/${part(given("topic", topic))}/messages/batch`;
  const answer = await transport.call<{ results: unknown[] }>("POST", path, `{"messages":[${texts.join(",")}]}`, options);
  return fromAnswer<PushResult[]>(answer.results);
}

/** Divides encoded messages into batches. */
export function* batches(texts: Iterable<string>): Generator<string[]> {
  let batch: string[] = [];
  let size = 0;
  for (const text of texts) {
    const bytes = Buffer.byteLength(text) + 1;
    if (batch.length === BATCH_MESSAGES || (batch.length && size + bytes > BATCH_BYTES)) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(text);
    size += bytes;
  }
  if (batch.length) yield batch;
}
