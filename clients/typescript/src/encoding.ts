/** How messages and due times are written in requests. Refuses what the broker would refuse. */

import type { NewDue, NewMessage, PushFields } from "./messages.js";
import { given, toRequest, ulid } from "./values.js";

/** A message as JSON, with an id. */
export function encoded(message: NewMessage, id: string, trace: Record<string, string> = {}): string {
  const { payload, ...fields } = message;
  if (fields.key !== undefined) given("key", fields.key);
  if (fields.dedupKey !== undefined) given("dedupKey", fields.dedupKey);
  checkDue(fields);
  return JSON.stringify(toRequest({ payload, ...fields, id, ...trace, signal: undefined }));
}

/** The id of a message to push. */
export function idOf(message: PushFields): string {
  return message.id === undefined ? ulid() : given("id", message.id);
}

/** The body of a reschedule. */
export function dueBody({ delay, dueAt, past }: NewDue): Record<string, unknown> {
  checkDue({ delay, dueAt });
  if (delay === undefined && dueAt === undefined) throw new TypeError("a reschedule needs a delay or a dueAt");
  return toRequest({ delay, dueAt, past });
}

function checkDue({ delay, dueAt }: { delay?: unknown; dueAt?: unknown }): void {
  if (delay !== undefined && dueAt !== undefined) throw new TypeError("give a delay or a dueAt, not both");
}
