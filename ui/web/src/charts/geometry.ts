// One x axis for the whole stack: every plot has the same gutters, so that pixels line up.

export const GUTTER = 54;
export const RIGHT = 14;

/** A stretch of time in ms since the epoch. */
export interface Span {
  start: number;
  end: number;
}

export function plotWidth(width: number): number {
  return Math.max(1, width - GUTTER - RIGHT);
}

/** CSS pixels from the left edge of the stack. */
export function toX(t: number, span: Span, width: number): number {
  return GUTTER + ((t - span.start) / (span.end - span.start)) * plotWidth(width);
}

export function fromX(x: number, span: Span, width: number): number {
  const f = (x - GUTTER) / plotWidth(width);
  return span.start + Math.min(1, Math.max(0, f)) * (span.end - span.start);
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600].map((s) => s * 1000);

/** Round instants inside the span, at least 90 px apart. */
export function timeTicks(span: Span, width: number): number[] {
  const room = Math.max(1, Math.floor(plotWidth(width) / 90));
  const length = span.end - span.start;
  const step = STEPS.find((s) => length / s <= room) ?? 600_000;
  const out: number[] = [];
  for (let t = Math.ceil(span.start / step) * step; t <= span.end; t += step) out.push(t);
  return out;
}

/** The next "nice" number at or above n: 1, 2, 3, 5 times a power of ten, even enough to halve. */
export function niceCeil(n: number): number {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  for (const m of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (m * power >= n * (1 - 1e-9)) return m * power;
  return 10 * power;
}

/** Fits a canvas to its box and answers a context that draws in CSS pixels. */
export function fit(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = devicePixelRatio || 1;
  const w = Math.round(width * ratio);
  const h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const ctx = canvas.getContext("2d");
  ctx?.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx?.clearRect(0, 0, width, height);
  return ctx;
}
