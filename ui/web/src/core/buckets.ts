// Counts of decisions per stretch of time, for the decision strip and the scrub bar.
import { FATE } from "./ring";
import type { Store } from "./store";

export interface Bucket {
  admit: number;
  defer: number;
  reject: number;
  /** Known fates among the admitted; the rest still runs or is not known one by one. */
  met: number;
  missed: number;
}

export interface Buckets {
  /** Start of the first bucket, a multiple of stepMs, so that bars keep their place while time goes on. */
  start: number;
  stepMs: number;
  list: Bucket[];
}

/**
 * Counts the decisions from start to end. Frames tell exact counts even when they carry only a sample of the
 * decisions, so rows count where there are rows, and single decisions only where they came without one.
 */
export function bucketDecisions(store: Store, start: number, end: number, stepMs: number): Buckets {
  const first = Math.floor(start / stepMs);
  const n = Math.max(1, Math.floor(end / stepMs) - first + 1);
  const list: Bucket[] = Array.from({ length: n }, () => ({ admit: 0, defer: 0, reject: 0, met: 0, missed: 0 }));
  const at = (t: number) => list[Math.floor(t / stepMs) - first];
  countRows(store, start, end, at);
  countSingles(store, start, end, at);
  return { start: first * stepMs, stepMs, list };
}

function countRows(store: Store, start: number, end: number, at: (t: number) => Bucket | undefined): void {
  const [a, d, r] = ["n_admit", "n_defer", "n_reject"].map((name) => store.column(name));
  const rows = store.rows;
  for (let abs = rows.lowerBound(start); abs < rows.total; abs++) {
    const t = rows.time(abs);
    if (t > end) break;
    const bucket = at(t);
    if (!bucket) continue;
    bucket.admit += rows.cell(abs, a ?? -1) || 0;
    bucket.defer += rows.cell(abs, d ?? -1) || 0;
    bucket.reject += rows.cell(abs, r ?? -1) || 0;
  }
}

function countSingles(store: Store, start: number, end: number, at: (t: number) => Bucket | undefined): void {
  const ring = store.decisions;
  for (let abs = ring.lowerBound(start); abs < ring.total; abs++) {
    const t = ring.time(abs);
    const bucket = t > end ? undefined : at(t);
    if (!bucket) continue;
    const verdict = ring.get(abs, "verdict");
    if (ring.get(abs, "counted") === 0) {
      if (verdict === 0) bucket.admit++;
      else if (verdict === 1) bucket.defer++;
      else bucket.reject++;
    }
    if (verdict !== 0) continue;
    const fate = ring.get(abs, "fate");
    if (fate === FATE.met) bucket.met++;
    else if (fate === FATE.missed) bucket.missed++;
  }
}
