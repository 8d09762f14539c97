/** HTTP: connections that are reused, requests that are repeated, and a token that is read again. */

import { readFileSync, statSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import type { Socket } from "node:net";

/** The broker closes idle connections after 75 seconds. */
const IDLE_MS = 50_000;
/** Answers after which the same request may succeed. */
export const REPEATED: ReadonlySet<number> = new Set([408, 429, 503, 504]);

/** The answer of the broker to a request that failed, as in RFC 9457. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  request_id?: string;
  [field: string]: unknown;
}

/**
 * The broker refused a request. `type` is stable, such as `not-found`; `problem` is the whole answer.
 *
 * `repeated`: an earlier try had no answer and may have succeeded. Then a `conflict` or `precondition-failed` may be its doing.
 */
export class DwellError extends Error {
  readonly type: string;
  readonly detail: string;
  readonly requestId: string;
  repeated = false;

  constructor(readonly status: number, readonly problem: Problem, readonly retryAfterMs = 0) {
    const type = (problem.type ?? "").replace("urn:dwell:error:", "");
    super(status ? `${status} ${type}: ${problem.detail ?? ""}` : (problem.detail ?? ""));
    this.name = new.target.name;
    this.type = type;
    this.detail = problem.detail ?? "";
    this.requestId = problem.request_id ?? "";
  }
}

/** No answer, or none that is final, within `retryFor`. A push may be stored: push again with the same id and key. */
export class Unavailable extends DwellError {}

/** The caller interrupted a request. */
export class Interrupted extends Error {}

/** How long to wait before try number `tries` + 1, in milliseconds: exponential, with jitter. */
export function backoff(tries: number, first = 50, most = 2000): number {
  return Math.min(most, first * 2 ** Math.min(tries, 16)) * (0.5 + Math.random() / 2);
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

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

export interface CallOptions {
  timeoutMs?: number;
  retryForMs?: number;
  headers?: Record<string, string>;
  interrupt?: Interrupt;
}

interface Answer {
  status: number;
  retryAfterMs: number;
  raw: Buffer;
}

/** Sends requests to a broker. */
export class Transport {
  private readonly target: http.RequestOptions;
  private readonly request: typeof http.request;
  private readonly agent: http.Agent;
  private readonly token: Token;

  constructor(private readonly server: string, private readonly tokenFile: string | undefined, private readonly caFile: string | undefined,
    private readonly timeoutMs: number, private readonly retryForMs: number) {
    const isTls = server.startsWith("https:");
    const options = { keepAlive: true, timeout: IDLE_MS, maxFreeSockets: 64, ...(caFile ? { ca: readFileSync(caFile) } : {}) };
    this.agent = isTls ? new https.Agent(options) : new http.Agent(options);
    this.request = (isTls ? https.request : http.request) as typeof http.request;
    this.target = target(server);
    this.token = new Token(tokenFile);
  }

  /** Sends a request until its answer is final or `retryForMs` are over. Rejects with `DwellError`. */
  async call<T>(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<T> {
    const data = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
    const until = performance.now() + (options.retryForMs ?? this.retryForMs);
    let isOpen = false;
    for (let tries = 0; ; tries++) {
      try {
        return await this.once<T>(method, path, data, options);
      } catch (error) {
        if (!(error instanceof DwellError)) throw error;
        error.repeated = isOpen;
        isOpen ||= error.status === 0 || error.status === 504;
        if (error.status && !REPEATED.has(error.status)) throw error;
        const wait = Math.max(error.retryAfterMs, backoff(tries));
        if (performance.now() + wait > until) throw new Unavailable(error.status, error.problem, error.retryAfterMs);
        await sleep(wait);
      }
    }
  }

  /** The same with connections that nothing else uses: behind a load balancer they stay with one broker. */
  sibling(): Transport {
    return new Transport(this.server, this.tokenFile, this.caFile, this.timeoutMs, this.retryForMs);
  }

  /** Closes the connections that are idle. */
  close(): void {
    this.agent.destroy();
  }

  private async once<T>(method: string, path: string, data: string, options: CallOptions): Promise<T> {
    let token = this.token.read();
    for (;;) {
      const answer = await this.exchange(method, path, data, token, options);
      if (answer === "reused") continue;
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
  private exchange(method: string, path: string, data: string, token: string, options: CallOptions): Promise<Answer | "reused"> {
    return new Promise((resolve, reject) => {
      const { interrupt } = options;
      const headers: http.OutgoingHttpHeaders = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(data), ...options.headers };
      if (token) headers["Authorization"] = `Bearer ${token}`;
      const request = this.request({ ...this.target, method, path, headers, agent: this.agent });
      let isTimeout = false;
      const timer = setTimeout(() => {
        isTimeout = true;
        request.destroy(new Error("no answer in time"));
      }, options.timeoutMs ?? this.timeoutMs);
      const fail = (error: Error): void => {
        clearTimeout(timer);
        interrupt?.watch(undefined);
        if (interrupt?.isSet) reject(new Interrupted());
        else if (request.reusedSocket && !isTimeout) resolve("reused");
        else reject(new DwellError(0, { detail: error.message || String(error) }));
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
          clearTimeout(timer);
          interrupt?.watch(undefined);
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
      if (!this.token) throw new DwellError(0, { detail: `token file: ${String(error)}` });
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
  let answer: Problem;
  try {
    answer = raw.length ? (JSON.parse(raw.toString()) as Problem) : {};
  } catch {
    answer = { detail: raw.subarray(0, 200).toString() };
  }
  // A problem with verdicts or results is an answer to read: only some of it failed.
  if (status < 300 || "results" in answer) return answer as T;
  throw new DwellError(status, answer, retryAfterMs);
}
