// @ts-check
// Reads again and again: one reading at a time, none while the tab is hidden or the reader has stopped it.

/** From the end of one reading to the next. */
const PAUSE_MS = 3_000;

/** A reading that takes long is repeated so much less often: it takes a tenth of the time at most. */
const SHARE = 9;

export class Refresh {
  constructor() {
    /** @type {(() => Promise<void>) | undefined} */
    this.reading = undefined;
    this.stopped = false;
    this.busy = false;
    this.again = false;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.wait(0));
  }

  /**
   * From now on this is read, at once and then again and again.
   * @param {() => Promise<void>} reading It has to deal with its errors.
   */
  follow(reading) {
    this.reading = reading;
    void this.now();
  }

  /** @param {boolean} stopped */
  stop(stopped) {
    this.stopped = stopped;
    this.wait(0);
  }

  /** Reads at once. */
  async now() {
    clearTimeout(this.timer);
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    const began = performance.now();
    try {
      do {
        this.again = false;
        await this.reading?.();
      } while (this.again);
    } finally {
      this.busy = false;
    }
    this.wait(Math.max(PAUSE_MS, (performance.now() - began) * SHARE));
  }

  /** @param {number} ms */
  wait(ms) {
    clearTimeout(this.timer);
    if (this.stopped || document.hidden || this.busy) return;
    this.timer = setTimeout(() => void this.now(), ms);
  }
}
