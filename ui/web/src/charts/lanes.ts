// The decision strip: three lanes. Bars a bucket when decisions are dense, one mark each when they are sparse.
import { VERDICTS } from "../api";
import { type Bucket, bucketDecisions } from "../core/buckets";
import { si } from "../core/format";
import { FATE } from "../core/ring";
import type { Store } from "../core/store";
import { alpha, type Ink } from "../theme";
import { fit, GUTTER, plotWidth, type Span, timeTicks, toX } from "./geometry";
import { drawMarks, hatch } from "./marks";

const BAR_PX = 4;
/** Decisions per pixel above which bars replace marks. */
const DENSE = 0.4;
/** The same for a short stretch, where some overlap can still be read. */
const CROWD = 1.2;
const CROWD_PX = 24;

export interface LaneScene {
  store: Store;
  span: Span;
  width: number;
  height: number;
  ink: Ink;
  /** Absolute number of the decision in focus, -1 for none. */
  focus: number;
  matches: ((abs: number) => boolean) | null;
}

export function isDense(store: Store, span: Span, width: number): boolean {
  const ring = store.decisions;
  const n = ring.lowerBound(span.end + 1) - ring.lowerBound(span.start);
  return n > plotWidth(width) * DENSE || crowded(store, span, width) || hasSample(store, span);
}

/** True when the decisions of some short stretch would cover each other, however empty the rest is. */
function crowded(store: Store, span: Span, width: number): boolean {
  const ring = store.decisions;
  const step = ((span.end - span.start) / plotWidth(width)) * CROWD_PX;
  const to = ring.lowerBound(span.end + 1);
  let abs = ring.lowerBound(span.start);
  while (abs < to) {
    const next = ring.lowerBound(ring.time(abs) + step);
    if (next - abs > CROWD_PX * CROWD) return true;
    abs = Math.max(next, abs + 1);
  }
  return false;
}

function hasSample(store: Store, span: Span): boolean {
  const rows = store.rows;
  const column = store.column("n_admit");
  const step = Math.max(1, Math.floor((rows.total - rows.lowerBound(span.start)) / 200));
  for (let abs = rows.lowerBound(span.start); abs < rows.total; abs += step) {
    if (rows.cell(abs, column) > 200) return true;
  }
  return false;
}

export function drawLanes(canvas: HTMLCanvasElement, scene: LaneScene): void {
  const { width, height, ink, span, store } = scene;
  const ctx = fit(canvas, width, height);
  if (!ctx) return;
  const lane = height / 3;
  drawFrame(ctx, scene, lane);
  drawMarks(ctx, { left: GUTTER, top: 0, width: plotWidth(width), height }, span, store, ink, 1);
  ctx.save();
  ctx.beginPath();
  ctx.rect(GUTTER, 0, plotWidth(width), height);
  ctx.clip();
  const dense = isDense(store, span, width);
  if (dense) drawBars(ctx, scene, lane);
  else drawSingles(ctx, scene, lane);
  drawUnknown(ctx, scene);
  drawFocus(ctx, scene, lane, dense);
  ctx.restore();
}

function drawFrame(ctx: CanvasRenderingContext2D, scene: LaneScene, lane: number): void {
  const { ink, span, width, height } = scene;
  ctx.strokeStyle = ink.grid;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const t of timeTicks(span, width)) {
    const x = Math.round(toX(t, span, width)) + 0.5;
    ctx.moveTo(x, 0);
    ctx.lineTo(x, height);
  }
  for (let i = 1; i <= 3; i++) {
    const y = Math.round(lane * i) - 0.5;
    ctx.moveTo(GUTTER, y);
    ctx.lineTo(width - 14, y);
  }
  ctx.stroke();
  ctx.font = ink.font;
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  ctx.fillStyle = ink.muted;
  VERDICTS.forEach((v, i) => {
    ctx.fillText(v, GUTTER - 6, lane * (i + 0.5));
  });
}

function verdictColor(ink: Ink, verdict: number): string {
  return verdict === 0 ? ink.admit : verdict === 1 ? ink.defer : ink.reject;
}

function drawBars(ctx: CanvasRenderingContext2D, scene: LaneScene, lane: number): void {
  const { ink, span, width, store } = scene;
  const step = niceStep(((span.end - span.start) / plotWidth(width)) * BAR_PX);
  const buckets = bucketDecisions(store, span.start, span.end, step);
  const px = toX(span.start + step, span, width) - toX(span.start, span, width);
  const bar = Math.max(1, Math.floor(px) - 1);
  const top = buckets.list.reduce((m, b) => Math.max(m, b.admit, b.defer, b.reject), 1);
  const scale = (lane - 8) / top;
  buckets.list.forEach((b, i) => {
    const x = Math.round(toX(buckets.start + i * step, span, width));
    admitBar(ctx, ink, b, x, lane - 1, bar, scale);
    plainBar(ctx, ink.defer, b.defer, x, lane * 2 - 1, bar, scale, true, ink);
    plainBar(ctx, ink.reject, b.reject, x, lane * 3 - 1, bar, scale, false, ink);
  });
  ctx.fillStyle = ink.muted;
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.lineWidth = 3;
  ctx.strokeStyle = ink.surface;
  const note = `max ${si(top)} per ${step >= 1000 ? `${step / 1000} s` : `${step} ms`}`;
  ctx.strokeText(note, GUTTER + 4, 3);
  ctx.fillText(note, GUTTER + 4, 3);
}

/** Steps that people can read: 100, 200, 500 ms, 1, 2, 5 s. */
function niceStep(ms: number): number {
  for (const s of [100, 200, 250, 500, 1000, 2000, 2500, 5000, 10_000]) if (s >= ms) return s;
  return 20_000;
}

function admitBar(
  ctx: CanvasRenderingContext2D,
  ink: Ink,
  b: Bucket,
  x: number,
  base: number,
  width: number,
  scale: number,
): void {
  if (b.admit === 0) return;
  const whole = Math.max(2, b.admit * scale);
  const met = (Math.min(b.met, b.admit) / b.admit) * whole;
  const missed = (Math.min(b.missed, b.admit - Math.min(b.met, b.admit)) / b.admit) * whole;
  ctx.fillStyle = alpha(ink.admit, 0.38);
  ctx.fillRect(x, base - whole, width, whole);
  ctx.fillStyle = ink.admit;
  ctx.fillRect(x, base - met, width, met);
  ctx.fillStyle = ink.error;
  ctx.fillRect(x, base - met - missed, width, missed);
}

function plainBar(
  ctx: CanvasRenderingContext2D,
  color: string,
  n: number,
  x: number,
  base: number,
  width: number,
  scale: number,
  hatched: boolean,
  ink: Ink,
): void {
  if (n === 0) return;
  const h = Math.max(2.5, n * scale);
  ctx.fillStyle = color;
  ctx.fillRect(x, base - h, width, h);
  if (!hatched) return;
  ctx.fillStyle = alpha(ink.surface, 0.55);
  for (let y = base - 3; y > base - h; y -= 4) ctx.fillRect(x, y, width, 1.5);
}

/** Radius by reserved tokens: area grows with them, within what can still be seen and told apart. */
function radius(reserved: number): number {
  return Math.min(7.5, 2.6 + Math.sqrt(Math.max(0, reserved || 0)) / 28);
}

/** A steady place inside the lane, so that neighbours do not cover each other. */
function laneY(abs: number, verdict: number, lane: number): number {
  const spread = ((abs * 2654435761) >>> 0) / 4294967296;
  return lane * verdict + lane * (0.26 + 0.48 * spread);
}

function drawSingles(ctx: CanvasRenderingContext2D, scene: LaneScene, lane: number): void {
  const { store, span, width, ink, matches } = scene;
  const ring = store.decisions;
  const to = ring.lowerBound(span.end + 1);
  for (let abs = ring.lowerBound(span.start); abs < to; abs++) {
    const verdict = ring.get(abs, "verdict");
    if (verdict < 0) continue;
    ctx.globalAlpha = matches && !matches(abs) ? 0.18 : 1;
    drawGlyph(ctx, ink, verdict, ring.get(abs, "fate"), {
      x: toX(ring.time(abs), span, width),
      y: laneY(abs, verdict, lane),
      r: radius(ring.get(abs, "reserved")),
    });
  }
  ctx.globalAlpha = 1;
}

interface Place {
  x: number;
  y: number;
  r: number;
}

export function drawGlyph(ctx: CanvasRenderingContext2D, ink: Ink, verdict: number, fate: number, at: Place): void {
  const { x, y, r } = at;
  const color = verdictColor(ink, verdict);
  ctx.strokeStyle = color;
  ctx.fillStyle = color;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  if (verdict === 2) {
    const k = Math.min(r, 5) * 0.85;
    ctx.lineWidth = 2;
    ctx.moveTo(x - k, y - k);
    ctx.lineTo(x + k, y + k);
    ctx.moveTo(x + k, y - k);
    ctx.lineTo(x - k, y + k);
    ctx.stroke();
    return;
  }
  ctx.arc(x, y, r, 0, Math.PI * 2);
  if (verdict === 1) {
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x, y, r, Math.PI / 2, Math.PI * 1.5);
    ctx.fill();
    return;
  }
  if (fate === FATE.met) ctx.fill();
  else if (fate === FATE.missed) {
    ctx.strokeStyle = ink.error;
    ctx.fillStyle = alpha(ink.error, 0.25);
    ctx.fill();
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(x - r * 0.7, y + r * 0.7);
    ctx.lineTo(x + r * 0.7, y - r * 0.7);
    ctx.stroke();
  } else {
    ctx.fillStyle = alpha(color, 0.12);
    ctx.fill();
    ctx.stroke();
  }
}

/** Says where decisions were made that this viewer was never told: an empty strip would claim that there were none. */
function drawUnknown(ctx: CanvasRenderingContext2D, scene: LaneScene): void {
  const { store, span, width, height, ink } = scene;
  if (store.knownFrom <= span.start || store.rows.firstTime >= store.knownFrom) return;
  const to = toX(Math.min(store.knownFrom, span.end), span, width);
  hatch(ctx, { left: GUTTER, top: 0, width: plotWidth(width), height }, GUTTER, to, ink, 1);
  if (to - GUTTER < 120) return;
  ctx.font = ink.font;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.lineWidth = 4;
  ctx.strokeStyle = ink.surface;
  ctx.fillStyle = ink.muted;
  const x = (GUTTER + to) / 2;
  ctx.strokeText("not loaded", x, height / 2);
  ctx.fillText("not loaded", x, height / 2);
}

/** Rings the decision in focus and joins the tries of its session. */
function drawFocus(ctx: CanvasRenderingContext2D, scene: LaneScene, lane: number, dense: boolean): void {
  const { store, focus, ink, span, width } = scene;
  const ring = store.decisions;
  if (focus < 0 || !ring.has(focus)) return;
  const place = (abs: number) => ({
    x: toX(ring.time(abs), span, width),
    y: dense ? lane * (ring.get(abs, "verdict") + 0.5) : laneY(abs, ring.get(abs, "verdict"), lane),
  });
  const session = ring.session(focus);
  if (session !== "") {
    ctx.strokeStyle = alpha(ink.text, 0.45);
    ctx.lineWidth = 1;
    ctx.beginPath();
    let begun = false;
    const to = ring.lowerBound(span.end + 1);
    for (let abs = ring.lowerBound(span.start); abs < to; abs++) {
      if (ring.session(abs) !== session) continue;
      const p = place(abs);
      if (begun) ctx.lineTo(p.x, p.y);
      else ctx.moveTo(p.x, p.y);
      begun = true;
    }
    ctx.stroke();
  }
  const p = place(focus);
  ctx.strokeStyle = ink.text;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  ctx.arc(p.x, p.y, dense ? 5 : radius(ring.get(focus, "reserved")) + 3.5, 0, Math.PI * 2);
  ctx.stroke();
}

/** The decision nearest to a point of the strip, -1 when none is near. */
export function pick(store: Store, span: Span, width: number, height: number, x: number, y: number): number {
  const lane = height / 3;
  const ring = store.decisions;
  const dense = isDense(store, span, width);
  const verdict = Math.min(2, Math.max(0, Math.floor(y / lane)));
  const perPixel = (span.end - span.start) / plotWidth(width);
  const t = span.start + (x - GUTTER) * perPixel;
  let best = -1;
  let bestDistance = dense ? 8 : 14;
  const to = ring.lowerBound(t + 15 * perPixel);
  for (let abs = ring.lowerBound(t - 15 * perPixel); abs < to; abs++) {
    if (ring.get(abs, "verdict") !== verdict) continue;
    const dx = toX(ring.time(abs), span, width) - x;
    const dy = dense ? 0 : laneY(abs, verdict, lane) - y;
    const distance = Math.hypot(dx, dy);
    if (distance < bestDistance) {
      best = abs;
      bestDistance = distance;
    }
  }
  return best;
}
