/** A broker for tests, whose time they move: `const broker = await startBroker(); await broker.advance("30d");` */

import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Client } from "./client.js";
import type { CallOptions } from "./messages.js";
import { fromAnswer, toRequest, type Duration, type Time } from "./values.js";

const STOP_TIMEOUT_MS = 30_000;
/** Many cron jobs may fire before the answer. */
const MOVE_TIMEOUT_MS = 300_000;

/** The outcome of a move of the clock. */
export interface ClockMoved {
  now: Date;
  /** The groups in which messages became due. */
  due: { topic: string; group: string; messages: number }[];
  /** The cron jobs that fired, with the number of their occurrences. */
  fired: { topic: string; name: string; times: number }[];
  /** Deliveries whose visibility timeout passed. */
  timedOut: number;
}

/** A broker on a test clock. */
export class TestBroker {
  readonly client: Client;

  /** @internal */
  constructor(readonly server: string, private readonly child: ChildProcess, private readonly directory: string) {
    this.client = new Client(server);
  }

  /** Moves time forward. What becomes due can be received once it resolves. */
  advance(by: Duration, options?: CallOptions): Promise<ClockMoved> {
    return this.move({ advance: by }, options);
  }

  /** Moves time forward to a time that is not past. */
  advanceTo(to: Time, options?: CallOptions): Promise<ClockMoved> {
    return this.move({ to }, options);
  }

  /** The time of messages. */
  async now(options?: CallOptions): Promise<Date> {
    const { now } = await this.client.transport.call<{ now: string }>("GET", "/v1/test/clock", undefined, options);
    return new Date(now);
  }

  /** Ends the broker and removes its directory. */
  async stop(): Promise<void> {
    this.client.close();
    await end(this.child, this.directory);
  }

  /** Stops the broker at the end of an `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  private async move(to: { advance: Duration } | { to: Time }, { signal }: CallOptions = {}): Promise<ClockMoved> {
    // Never repeated: the clock would move again.
    const options = { timeoutMs: MOVE_TIMEOUT_MS, retryForMs: 0, isOnce: true, signal };
    return fromAnswer(await this.client.transport.call("POST", "/v1/test/clock", toRequest(to), options));
  }
}

/**
 * Runs `dwell serve --test-clock` on a free port with a temporary directory, until `stop`.
 *
 * `binary` is the program; default `DWELL_BIN`, and else `dwell` in `PATH`. Rejects if it does not start.
 */
export async function startBroker({ binary }: { binary?: string } = {}): Promise<TestBroker> {
  const directory = mkdtempSync(join(tmpdir(), "dwell-test-"));
  const args = ["serve", "--test-clock", "--listen", "127.0.0.1:0", "--data-dir", directory, "--log-level", "error"];
  // Nothing from the environment may change what it does.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("DWELL_")));
  const child = spawn(binary || process.env["DWELL_BIN"] || "dwell", args, { env, stdio: ["ignore", "pipe", "inherit"] });
  try {
    return new TestBroker(await address(child), child, directory);
  } catch (error) {
    await end(child, directory);
    throw error;
  }
}

/** The address that it prints once it serves. */
function address(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once("error", (error) => reject(new Error(`${error.message}; DWELL_BIN may name the program`)));
    child.once("exit", (code) => reject(new Error(`dwell serve --test-clock ended with ${code}`)));
    if (!child.stdout) return;
    createInterface({ input: child.stdout }).on("line", (line) => {
      const [, server] = /^\s*address\s+(\S+)/.exec(line) ?? [];
      if (server) resolve(server);
    });
  });
}

async function end(child: ChildProcess, directory: string): Promise<void> {
  if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_TIMEOUT_MS);
    await ended;
    clearTimeout(timer);
  }
  rmSync(directory, { recursive: true, force: true });
}
