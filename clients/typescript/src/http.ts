/** HTTP: connections that are reused, requests that are repeated, and a token that is read again. */

import { readFileSync, statSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import type { Socket } from "node:net";
import { DwellError, refusal, Unavailable } from "./errors.js";
import { onAbort } from "./signals.js";

/** The broker closes idle connections after 75 seconds. */
const IDLE_MS = 50_000;
/** Answers after which the same request may succeed. */
export const REPEATED: ReadonlySet<number> = new Set([408, 429, 503, 504]);
/** Errors of the network before anything was sent. */
const UNSENT: ReadonlySet<unknown> = new Set(["ECONNREFUSED", "ENOENT", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

const isUnsent = (error: unknown): boolean => UNSENT.has((error as NodeJS.ErrnoException | undefined)?.code);

/** The worker ended its own request. */
export class Interrupted extends Error {}

/** How long to wait before try number `tries` + 1, in milliseconds: exponential, with jitter. */
export function backoff(tries: number, first = 50, most = 2000): number {
  return Math.min(most, first * 2 ** Math.min(tries, 16)) * (0.5 + Math.random() / 2);
}

/** Waits. Rejects with the reason of the signal once it is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error);
    const end = (): void => {
      forget();
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      forget();
      resolve();
    }, ms);
    const forget = onAbort(signal, end);
  });
}

/** Ends a request early. An answer that is already on its way is still read. */
export class Interrupt {
  isSet = false;
  private socket: Socket | undefined;

  watch(socket: Socket | undefined): void {
    this.socket = socket;
    if (this.isSet) this.set();
  }

  set(): void {
    this.isSet = true;
    const socket = this.socket;
    // The broker ends the request when the client can send nothing more.
    socket?.end();
    if (socket) setTimeout(() => socket.destroy(), 1000).unref();
  }
}

export interface RequestOptions {
  timeoutMs?: number;
  retryForMs?: number;
  headers?: Record<string, string>;
  interrupt?: Interrupt | undefined;
  signal?: AbortSignal | undefined;
  /** A second request would do it again: it is repeated only if the first one certainly changed nothing. */
  isOnce?: boolean;
}

interface Answer {
  status: number;
  retryAfterMs: number;
  raw: Buffer;
}

/** What all connections to a broker have in common. */
export interface TransportOptions {
  server: string;
  tokenFile: string | undefined;
  caFile: string | undefined;
  timeoutMs: number;
  retryForMs: number;
}

/** Sends requests to a broker. */
export class Transport {
  readonly server: string;
  readonly retryForMs: number;
  private readonly target: http.RequestOptions;
  private readonly request: typeof http.request;
  private readonly agent: http.Agent;
  private readonly token: Token;

  constructor(private readonly options: TransportOptions, private readonly isShared = true) {
    const { server, caFile } = options;
    const isTls = server.startsWith("https:");
    const connections = { keepAlive: true, timeout: IDLE_MS, maxFreeSockets: 64, ...(caFile ? { ca: readFileSync(caFile) } : {}) };
    this.agent = isTls ? new https.Agent(connections) : new http.Agent(connections);
    this.request = (isTls ? https.request : http.request) as typeof http.request;
    this.target = target(server);
    this.token = new Token(options.tokenFile);
    this.server = server;
    this.retryForMs = options.retryForMs;
  }

  /** Sends a request until its answer is final or `retryForMs` are over. Rejects with `DwellError`, or the reason of the signal. */
  async call<T>(method: string, path: string, body?: unknown, options: RequestOptions = {}): Promise<T> {
    if (options.isOnce && this.isShared) {
      // A connection that is reused may end because it was idle, and then nobody knows what became of the request.
      const fresh = this.sibling();
      return fresh.call<T>(method, path, body, options).finally(() => fresh.close());
    }
    const data = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
    const until = performance.now() + (options.retryForMs ?? this.retryForMs);
    const before = { isOpen: false };
    for (let tries = 0; ; tries++) {
      options.signal?.throwIfAborted();
      try {
        return await this.once<T>(method, path, data, options, before);
      } catch (error) {
        if (!(error instanceof DwellError)) throw error;
        error.repeated = before.isOpen;
        const isOpen = error.status === 504 || (error.status === 0 && !isUnsent(error.cause));
        before.isOpen ||= isOpen;
        if (error.status && !REPEATED.has(error.status)) throw error;
        const left = until - performance.now();
        const wait = Math.max(error.retryAfter, Math.min(backoff(tries), left));
        if (left <= 0 || wait > left || (options.isOnce && isOpen)) throw this.unavailable(error, tries + 1);
        await sleep(wait, options.signal);
      }
    }
  }

  /** The end of all repeats. */
  unavailable(last: DwellError, tries: number): Unavailable {
    const times = tries === 1 ? "1 try" : `${tries} tries`;
    const message = `${this.server} is unavailable after ${times}: ${last.message || String(last.cause)}`;
    const cause = last.status ? last : last.cause;
    const unavailable = new Unavailable(last.status, last.problem, { message, retryAfterMs: last.retryAfter, cause });
    unavailable.repeated = last.repeated;
    return unavailable;
  }

  /** The same with connections that nothing else uses: behind a load balancer they stay with one broker. */
  sibling(): Transport {
    return new Transport(this.options, false);
  }

  /** Closes the connections that are idle. */
  close(): void {
    this.agent.destroy();
  }

  private async once<T>(method: string, path: string, data: string, options: RequestOptions, before: { isOpen: boolean }): Promise<T> {
    let token = this.token.read();
    for (;;) {
      const answer = await this.exchange(method, path, data, token, options);
      if (answer === "reused") {
        before.isOpen = true;
        continue;
      }
      if (answer.status === 401) {
        const now = this.token.read(true);
        if (now !== token) {
          token = now;
          continue;
        }
      }
      return decoded<T>(answer);
    }
  }

  /** One request. `reused`: the broker had closed the connection meanwhile. */
  private exchange(method: string, path: string, data: string, token: string, options: RequestOptions): Promise<Answer | "reused"> {
    return new Promise((resolve, reject) => {
      const { interrupt, signal } = options;
      const length = Buffer.byteLength(data);
      const headers: http.OutgoingHttpHeaders = { "Content-Type": "application/json", "Content-Length": length, ...options.headers };
      if (token) headers["Authorization"] = `Bearer ${token}`;
      const request = this.request({ ...this.target, method, path, headers, agent: this.agent });
      let isTimeout = false;
      const timeoutMs = options.timeoutMs ?? this.options.timeoutMs;
      const timer = setTimeout(() => {
        isTimeout = true;
        request.destroy(new Error(`no answer within ${timeoutMs} ms`));
      }, timeoutMs);
      const forget = onAbort(signal, () => void request.destroy(new Error("the caller ended the request")));
      const end = (): void => {
        clearTimeout(timer);
        forget();
        interrupt?.watch(undefined);
      };
      const fail = (error: NodeJS.ErrnoException): void => {
        end();
        if (signal?.aborted) reject(signal.reason as Error);
        else if (interrupt?.isSet) reject(new Interrupted());
        else if (request.reusedSocket && !isTimeout) resolve("reused");
        // An error about several addresses of a name has only a code.
        else reject(new DwellError(0, { detail: error.message || error.code || String(error) }, { cause: error }));
      };
      request.on("error", fail);
      if (interrupt) {
        request.on("socket", (socket) => {
          if (socket.connecting) socket.once("connect", () => interrupt.watch(socket));
          else interrupt.watch(socket);
        });
      }
      request.on("response", (response) => {
        const parts: Buffer[] = [];
        response.on("data", (part: Buffer) => parts.push(part));
        response.on("error", fail);
        response.on("end", () => {
          end();
          const after = response.headers["retry-after"] ?? "";
          const retryAfterMs = /^\d+$/.test(after) ? Number(after) * 1000 : 0;
          resolve({ status: response.statusCode ?? 0, retryAfterMs, raw: Buffer.concat(parts) });
        });
      });
      request.end(data);
    });
  }
}

/** The token in a file, read again when the file changes. */
class Token {
  private seen = "";
  private token = "";

  constructor(private readonly file: string | undefined) {}

  read(again = false): string {
    if (!this.file) return "";
    try {
      const stat = statSync(this.file);
      const seen = `${stat.mtimeMs} ${stat.ino} ${stat.size}`;
      if (again || seen !== this.seen) {
        this.token = readFileSync(this.file, "ascii").trim();
        this.seen = seen;
      }
    } catch (error) {
      // A file that is being replaced may be absent for a moment.
      if (!this.token) throw new DwellError(0, { detail: `token file: ${String(error)}` }, { cause: error });
    }
    return this.token;
  }
}

function target(server: string): http.RequestOptions {
  if (server.startsWith("unix:")) return { socketPath: server.slice(5), host: "localhost" };
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (!url || !["http:", "https:"].includes(url.protocol) || url.pathname !== "/") {
    throw new TypeError(`server "${server}": expected http://HOST:PORT, https://HOST:PORT or unix:/PATH`);
  }
  const explicit = /:(\d+)\/?$/.exec(server)?.[1];
  return { host: url.hostname.replace(/^\[|\]$/g, ""), port: explicit ?? (url.protocol === "https:" ? 443 : 7373) };
}

function decoded<T>({ status, retryAfterMs, raw }: Answer): T {
  let answer: { detail?: string };
  try {
    answer = raw.length ? (JSON.parse(raw.toString()) as object) : {};
  } catch {
    answer = { detail: raw.subarray(0, 200).toString() };
  }
  // A problem with verdicts or results is an answer to read: only some of it failed.
  if (status < 300 || "results" in answer) return answer as T;
  throw refusal(status, answer, retryAfterMs);
}
