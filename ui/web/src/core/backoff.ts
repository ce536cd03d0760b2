// When to try again: exponential with full jitter, forgotten after a connection has been stable.

export const BACKOFF_FIRST_MS = 500;
export const BACKOFF_MAX_MS = 15_000;
/** A connection that lasted this long was good; the next failure starts over. */
export const STABLE_MS = 10_000;
const FLOOR_MS = 100;

export class Backoff {
  private failures = 0;
  private openedAt: number | null = null;
  private readonly random: () => number;

  constructor(random: () => number = Math.random) {
    this.random = random;
  }

  /** Largest delay that the next failure can get, in ms. */
  get ceiling(): number {
    return Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** this.failures);
  }

  opened(now: number): void {
    this.openedAt = now;
  }

  /** Says that the connection failed or ended; answers how long to wait, in ms. */
  next(now: number): number {
    if (this.openedAt !== null && now - this.openedAt >= STABLE_MS) this.failures = 0;
    this.openedAt = null;
    const delay = Math.max(FLOOR_MS, this.random() * this.ceiling);
    this.failures = Math.min(this.failures + 1, 16);
    return delay;
  }
}
