/** Compiles every example of the README, and runs it against a broker. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startBroker } from "dwell-client/testing";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const SECTIONS = new Map(
  readFileSync(join(ROOT, "README.md"), "utf8").split(/^## /m).slice(1)
    .map((section) => [section.split("\n", 1)[0], /^```(?:ts|js)\n(.*?)^```/ms.exec(section)?.[1]])
    .filter(([, block]) => block),
);

/** What the reader of the page has besides its examples. */
const READER = `
import { Bury, Client, DwellError, Producer, Retry, Unavailable, Worker, type Delivery } from "dwell-client";
const dwell = new Client();
const reminders = ["one", "two"];
const customers = [7, 8, 9];
const tonight = new Date(Date.now() + 3_600_000);
const tomorrow = new Date(Date.now() + 7_200_000);
const isBusy = async (order: number) => order === 1;
const exists = async (order: number) => order !== 2;
const closeOrder = async (order: number, _: { signal: AbortSignal }) => console.log("closed", order);
`;

/** What is there before an example, and what it prints or leaves. */
const PLAYS = {
  "First steps": { prints: "close order 4711", stops: true },
  Push: { leaves: async (dwell) => assert.equal((await dwell.list("orders", { state: "scheduled" }).toArray()).length, 2) },
  Errors: { prints: "closed already" },
  "Push from many callers": { leaves: async (dwell) => assert.equal((await dwell.topic("reminders")).totals[0].scheduled, 3) },
  Handle: { begins: (dwell) => dwell.push("orders", { order: 3 }), prints: "closed 3", stops: true },
  Administer: { leaves: async (dwell) => assert.equal((await dwell.cron("reports", "nightly")).state, "active") },
  Test: { prints: "messages: 1" },
};

const file = (name, ending = "ts") => `${name.toLowerCase().replaceAll(" ", "-")}.${ending}`;

let directory;
before(async () => {
  directory = mkdtempSync(join(ROOT, "readme-"));
  for (const [name, block] of SECTIONS) {
    const isWhole = name === "First steps";
    writeFileSync(join(directory, file(name)), isWhole ? block.replace("json()", "json<{ order: number }>()") : READER + block);
  }
  const options = { strict: true, target: "ES2022", module: "NodeNext", types: ["node"] };
  writeFileSync(join(directory, "tsconfig.json"), JSON.stringify({ compilerOptions: options, include: ["*.ts"] }));
  const compiled = await promisify(execFile)(join(ROOT, "node_modules/.bin/tsc"), ["-p", directory]).catch((error) => error);
  assert.equal(compiled.stdout, "");
});
after(() => rmSync(directory, { recursive: true, force: true }));

/** Runs a program, stops it once it has printed what it should, and returns all that it prints. */
function run(path, server, { prints, stops }) {
  const child = spawn(process.execPath, [path], { env: { ...process.env, DWELL_SERVER: server }, stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part) => {
    text += part;
    if (stops && text.includes(prints)) child.kill("SIGTERM");
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), 30_000);
  return new Promise((resolve) => {
    child.once("close", (code) => {
      clearTimeout(timer);
      resolve({ code, text });
    });
  });
}

test("each example of the page is played", () => assert.deepEqual([...SECTIONS.keys()], Object.keys(PLAYS)));

for (const [name, play] of Object.entries(PLAYS)) {
  test(`the example of "${name}"`, async () => {
    const broker = await startBroker();
    try {
      const path = join(directory, file(name, "js"));
      writeFileSync(path, readFileSync(path, "utf8").replace("http://127.0.0.1:7373", broker.server));
      await play.begins?.(broker.client);
      const { code, text } = await run(path, broker.server, play);
      assert.equal(code, 0, text);
      if (play.prints) assert.ok(text.includes(play.prints), text);
      await play.leaves?.(broker.client);
    } finally {
      await broker.stop();
    }
  });
}
