// At most two points a pixel: the lowest and the highest value in each pixel column, in the order they came.
import type { RowRing } from "./ring";

/** x and one array a series, as uPlot takes them; null breaks a line. */
export type Plot = [number[], ...(number | null)[][]];
/** Reads one series at row abs; NaN when not known. */
export type Reader = (abs: number) => number;

/** Rows from..to (to excluded) of the ring, thinned to the width given in pixels. */
export function plotRows(ring: RowRing, from: number, to: number, width: number, readers: Reader[]): Plot {
  const n = to - from;
  if (n <= width * 2) return plain(ring, from, to, readers);
  return thinned(ring, from, to, Math.max(1, Math.floor(width)), readers);
}

function plain(ring: RowRing, from: number, to: number, readers: Reader[]): Plot {
  const x: number[] = [];
  const ys: (number | null)[][] = readers.map(() => []);
  for (let abs = from; abs < to; abs++) {
    x.push(ring.time(abs) / 1000);
    readers.forEach((read, i) => {
      ys[i]?.push(orNull(read(abs)));
    });
  }
  return [x, ...ys];
}

function thinned(ring: RowRing, from: number, to: number, width: number, readers: Reader[]): Plot {
  const t0 = ring.time(from);
  const span = Math.max(1, ring.time(to - 1) - t0);
  const x: number[] = [];
  const ys: (number | null)[][] = readers.map(() => []);
  let start = from;
  while (start < to) {
    const pixel = Math.floor(((ring.time(start) - t0) / span) * width);
    let end = start + 1;
    while (end < to && Math.floor(((ring.time(end) - t0) / span) * width) === pixel) end++;
    x.push(ring.time(start) / 1000);
    const two = end - start > 1;
    if (two) x.push(ring.time(end - 1) / 1000);
    readers.forEach((read, i) => {
      const [a, b] = extremes(read, start, end);
      ys[i]?.push(a);
      if (two) ys[i]?.push(b);
    });
    start = end;
  }
  return [x, ...ys];
}

/** Lowest and highest value in order of appearance; a bucket that begins or ends unknown keeps its break. */
function extremes(read: Reader, start: number, end: number): [number | null, number | null] {
  let lo = Number.POSITIVE_INFINITY;
  let hi = Number.NEGATIVE_INFINITY;
  let loAt = -1;
  let hiAt = -1;
  for (let abs = start; abs < end; abs++) {
    const v = read(abs);
    if (v < lo) {
      lo = v;
      loAt = abs;
    }
    if (v > hi) {
      hi = v;
      hiAt = abs;
    }
  }
  if (loAt < 0) return [null, null];
  const [a, b] = loAt <= hiAt ? [lo, hi] : [hi, lo];
  return [Number.isNaN(read(start)) ? null : a, Number.isNaN(read(end - 1)) ? null : b];
}

export function orNull(v: number): number | null {
  return Number.isFinite(v) ? v : null;
}
