// Measures BullMQ: node peer.js push|drain|lateness|burst|idle. README.md, one folder up, says what is measured.

import { Queue, Worker } from 'bullmq';

const PAYLOAD_BYTES = 100;
const told = (name, preferred) => Number(process.env[name] ?? preferred);
const BATCH = told('BATCH', 500), CALLERS = told('CALLERS', 4), CONCURRENCY = told('CALLERS', 300);
const measure = process.argv[2];
const [count, lead, rate] = ['COUNT', 'LEAD_MS', 'RATE'].map((name) => Number(process.env[name]));
const connection = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null };
const queue = new Queue('bench', { connection });
await queue.waitUntilReady();

// Pushes so many, each due when `due` says; the payload says when, and which one it is. Seconds it took.
async function push(count, due) {
  const began = performance.now();
  let next = 0;
  const caller = async () => {
    while (next < count) {
      const from = next, jobs = [];
      next += BATCH;
      const now = Date.now();
      for (let number = from; number < Math.min(from + BATCH, count); number++) {
        const at = due(number);
        const opts = { removeOnComplete: true, ...(at > now && { delay: at - now }) };
        jobs.push({ name: 'm', data: `${at} ${number}`.padEnd(PAYLOAD_BYTES), opts });
      }
      if (BATCH === 1) await queue.add(jobs[0].name, jobs[0].data, jobs[0].opts);
      else await queue.addBulk(jobs);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  return (performance.now() - began) / 1000;
}

// Resolves when so many are completed, which is BullMQ's ack.
function consume(count) {
  const lateness = [], numbers = new Set();
  let completed = 0;
  return new Promise((resolve, reject) => {
    const handle = async (job) => {
      const [due, number] = job.data.split(' ', 2).map(Number);
      lateness.push(Date.now() - due);
      numbers.add(number);
    };
    const worker = new Worker('bench', handle, { connection, concurrency: CONCURRENCY });
    worker.on('completed', () => { if (++completed === count) resolve({ lateness, numbers, ended: Date.now() }); });
    worker.on('failed', (_, error) => reject(error));
    worker.on('error', reject);
  });
}

function say(got, result) {
  const early = got.lateness.filter((lateness) => lateness < 0).length;
  const repeated = got.lateness.length - got.numbers.size;
  console.log(JSON.stringify({ ...result, distinct: got.numbers.size, repeated, early }));
}

function inTime(due) {
  if (Date.now() >= due) throw new Error('the pushes took longer than the lead');
}

function percentile(sorted, percent) {
  return sorted[Math.max(0, Math.ceil(sorted.length * percent / 100) - 1)];
}

const measures = {
  async push() {
    const inAnHour = Date.now() + 3_600_000;
    console.log(JSON.stringify({ push_per_s: Math.round(count / await push(count, () => inAnHour)) }));
  },
  async drain() {
    const now = Date.now();
    await push(count, () => now);
    const began = Date.now(), got = await consume(count);
    say(got, { drain_per_s: Math.round(count * 1000 / (got.ended - began)) });
  },
  async lateness() {
    const consumed = consume(count), first = Date.now() + lead;
    await push(count, (number) => first + Math.floor(number * 1000 / rate));
    inTime(first);
    const got = await consumed, sorted = got.lateness.toSorted((a, b) => a - b);
    const percentiles = [50, 99, 99.9].map((percent) => [`p${percent}`, percentile(sorted, percent)]);
    say(got, { lateness_ms: Object.fromEntries(percentiles) });
  },
  async burst() {
    const consumed = consume(count), due = Date.now() + lead;
    await push(count, () => due);
    inTime(due);
    const got = await consumed;
    say(got, { burst_s: (got.ended - due) / 1000 });
  },
  async idle() {
    const consumed = consume(2);
    await push(1, () => 0);
    console.log('ready');
    await consumed;
  },
};
await measures[measure]();
process.exit(0);
