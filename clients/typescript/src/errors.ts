/** The errors of this library. An argument that dwell would refuse is a `TypeError` or a `RangeError`, before anything is sent. */

import type { PushResult } from "./messages.js";
import { fromAnswer } from "./values.js";

/** One thing that is wrong with a request. Exactly one of `pointer`, `parameter` and `header` is there. */
export interface FieldError {
  /** A JSON pointer into the body, such as `/delay`. */
  pointer?: string;
  parameter?: string;
  header?: string;
  /** Stable, such as `format`. */
  code: string;
  /** For people. It may change. */
  detail: string;
}

/** The answer of the broker to a request that failed, as in RFC 9457. */
export interface Problem {
  /** Such as `urn:dwell:error:not-found`. */
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  requestId?: string;
  errors?: FieldError[];
  /** How many errors are not listed. */
  moreErrors?: number;
  /** What does not exist. */
  missing?: { topic?: string; group?: string; cron?: string };
  /** The message in each group, after a cancel or a reschedule that changed nothing. */
  groups?: { group: string; status: string }[];
  /** The id with which to push again. */
  id?: string;
}

/** How an error came about. */
export interface Circumstances {
  message?: string;
  retryAfterMs?: number;
  cause?: unknown;
}

/**
 * The broker refused a request. `type` is stable, such as `not-found`; `problem` is the whole answer.
 *
 * `repeated`: an earlier try had no answer and may have succeeded. Then a `conflict` or `precondition-failed` may be its doing.
 */
export class DwellError extends Error {
  /** The last part of the type of the problem; empty without an answer. */
  readonly type: string;
  readonly detail: string;
  readonly requestId: string;
  /** How long the broker wants to be left alone, in milliseconds. */
  readonly retryAfter: number;
  repeated = false;

  /** `status` is that of HTTP, and 0 without an answer. */
  constructor(readonly status: number, readonly problem: Problem, { message, retryAfterMs = 0, cause }: Circumstances = {}) {
    const type = (problem.type ?? "").replace("urn:dwell:error:", "");
    const text = message ?? (status ? `${status} ${type}: ${problem.detail ?? ""}` : (problem.detail ?? ""));
    super(text, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.type = type;
    this.detail = problem.detail ?? "";
    this.requestId = problem.requestId ?? "";
    this.retryAfter = retryAfterMs;
  }
}

/**
 * No answer, or none that is final, within `retryFor`. A push may be stored: push again with the same id and key.
 *
 * The message names the server, and `cause` is the last failure: a `DwellError`, or an error of the network.
 */
export class Unavailable extends DwellError {}

/** Some messages of a `pushMany` were not accepted. `results` has one result for each message, in order. */
export class PushManyError extends DwellError {
  constructor(status: number, problem: Problem, readonly results: PushResult[]) {
    super(status, problem);
  }
}

/** An answer that is an error. */
export function refusal(status: number, answer: unknown, retryAfterMs: number): DwellError {
  return new DwellError(status, fromAnswer<Problem>(answer), { retryAfterMs });
}
