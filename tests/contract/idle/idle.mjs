// POSTs over one connection of an http.Agent with keepAlive, and over those of fetch (undici), with silence before each.
// Every POST has to succeed; the agent has to use its connection again.

import http from "node:http";
import { setTimeout as pause } from "node:timers/promises";

const target = `${process.env.CONTRACT_URL}/v1/topics/idle/messages`;
const headers = { Authorization: `Bearer ${process.env.CONTRACT_TOKEN}`, "Content-Type": "text/plain" };
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

const overAgent = () =>
  new Promise((resolve, reject) => {
    const request = http.request(target, { method: "POST", agent, headers }, (response) => {
      response.resume().on("end", () => resolve([response.statusCode, request.reusedSocket]));
    });
    request.on("error", reject).end("node");
  });

const overFetch = async () => {
  const response = await fetch(target, { method: "POST", headers, body: "node" });
  await response.text();
  return [response.status, undefined];
};

let failed = 0;
for (const [i, seconds] of [0, 6, 30, 60].entries()) {
  await pause(seconds * 1000);
  for (const [name, post] of [["http.Agent", overAgent], ["fetch", overFetch]]) {
    try {
      const [status, reused] = await post();
      if (status !== 201 || (reused !== undefined && reused !== i > 0)) failed += 1;
      const again = reused === undefined ? "" : `, connection used again: ${reused}`;
      console.log(`node, ${name}: after ${seconds} s: ${status}${again}`);
    } catch (error) {
      failed += 1;
      console.log(`node, ${name}: after ${seconds} s: ${error.cause ?? error}`);
    }
  }
}
agent.destroy();
process.exit(failed > 0 ? 1 : 0);
