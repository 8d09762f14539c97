// @ts-check
// The text of /metrics, and what can be said of two of them.

/** @typedef {{labels: Record<string, string>, value: number}} Series */

/** The families that the console looks at; others are passed over. */
const FAMILIES = new Set([
  "dwell_pushes_total", "dwell_deliveries_total", "dwell_lateness_seconds_bucket", "dwell_wal_records",
  "dwell_wal_bytes", "dwell_wal_oldest_age_seconds", "dwell_http_connections", "dwell_restoring",
]);

/** How far samples reach back. */
const WINDOW_MS = 60_000;

/**
 * @param {string} text
 * @returns {Map<string, Series[]>}
 */
export function parsed(text) {
  const families = new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found || !FAMILIES.has(found[1])) continue;
    const [, name, labels, value] = found;
    if (!families.has(name)) families.set(name, []);
    families.get(name).push({ labels: labelsOf(labels ?? ""), value: value === "+Inf" ? Infinity : Number(value) });
  }
  return families;
}

/** @param {string} text */
function labelsOf(text) {
  /** @type {Record<string, string>} */
  const labels = {};
  for (const [, name, value] of text.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)) {
    labels[name] = value.replace(/\\(.)/g, (_, escaped) => (escaped === "n" ? "\n" : escaped));
  }
  return labels;
}

/** What was read in the last minute. */
export class Samples {
  constructor() {
    /** @type {{at: number, families: Map<string, Series[]>}[]} */
    this.samples = [];
  }

  /**
   * @param {string} text
   * @param {number} [at]
   */
  add(text, at = Date.now()) {
    this.samples.push({ at, families: parsed(text) });
    while (this.samples.length > 2 && this.samples[1].at < at - WINDOW_MS) this.samples.shift();
  }

  /** From the first sample to the last, in milliseconds; 0 when there is but one. */
  get span() {
    return this.samples.length < 2 ? 0 : this.samples[this.samples.length - 1].at - this.samples[0].at;
  }

  /**
   * The sum of the series of a family now.
   * @param {string} name
   * @param {Record<string, string>} [labels]
   */
  now(name, labels = {}) {
    return sum(this.samples[this.samples.length - 1], name, labels);
  }

  /**
   * How much a counter grows in a second; nothing before the second sample.
   * @param {string} name
   * @param {Record<string, string>} [labels]
   */
  rate(name, labels = {}) {
    if (this.span === 0) return undefined;
    const grown = this.now(name, labels) - sum(this.samples[0], name, labels);
    return (Math.max(grown, 0) / this.span) * 1_000;
  }

  /**
   * The part `q` of all hand-overs was this late or less, in milliseconds: of those between the samples, or with one sample
   * of all since the broker began. Nothing when there were none.
   * @param {number} q 0 to 1.
   * @param {Record<string, string>} [labels]
   */
  lateness(q, labels = {}) {
    const name = "dwell_lateness_seconds_bucket";
    const last = buckets(this.samples[this.samples.length - 1], name, labels);
    const first = this.span > 0 ? buckets(this.samples[0], name, labels) : new Map();
    const grown = [...last].map(([le, count]) => ({ le, count: Math.max(count - (first.get(le) ?? 0), 0) }));
    return quantile(grown.sort((a, b) => a.le - b.le), q);
  }
}

/** Kept while the console is open, so that rates are there at once when a page is come back to. */
export const samples = new Samples();

/**
 * @param {Series} series
 * @param {Record<string, string>} labels
 */
function fits(series, labels) {
  return Object.entries(labels).every(([name, value]) => series.labels[name] === value);
}

/**
 * @param {{families: Map<string, Series[]>} | undefined} sample
 * @param {string} name
 * @param {Record<string, string>} labels
 */
function sum(sample, name, labels) {
  const all = sample?.families.get(name) ?? [];
  return all.filter((series) => fits(series, labels)).reduce((total, series) => total + series.value, 0);
}

/**
 * @param {{families: Map<string, Series[]>} | undefined} sample
 * @param {string} name
 * @param {Record<string, string>} labels
 * @returns {Map<number, number>}
 */
function buckets(sample, name, labels) {
  const counts = new Map();
  for (const series of sample?.families.get(name) ?? []) {
    if (!fits(series, labels)) continue;
    const le = series.labels.le === "+Inf" ? Infinity : Number(series.labels.le);
    counts.set(le, (counts.get(le) ?? 0) + series.value);
  }
  return counts;
}

/**
 * @param {{le: number, count: number}[]} cumulative In seconds, sorted.
 * @param {number} q
 * @returns {{ms: number, beyond: boolean} | undefined} `beyond`: it is more than that, the last bound.
 */
export function quantile(cumulative, q) {
  const total = cumulative.at(-1)?.count ?? 0;
  if (total === 0) return undefined;
  const rank = q * total;
  let from = { le: 0, count: 0 };
  for (const bucket of cumulative) {
    if (bucket.count >= rank) {
      if (bucket.le === Infinity) return { ms: from.le * 1_000, beyond: true };
      const within = bucket.count === from.count ? 1 : (rank - from.count) / (bucket.count - from.count);
      return { ms: (from.le + (bucket.le - from.le) * within) * 1_000, beyond: false };
    }
    from = bucket;
  }
  return undefined;
}
