// The lower edge of the stack: the events lane with the time axis, and the scrub bar over the whole ring.
import { bucketDecisions } from "../core/buckets";
import { clock } from "../core/format";
import type { Mark, Store } from "../core/store";
import { alpha, type Ink } from "../theme";
import { fit, GUTTER, plotWidth, RIGHT, type Span, timeTicks, toX } from "./geometry";
import { drawMarks, marksIn } from "./marks";

interface Scene {
  store: Store;
  span: Span;
  width: number;
  height: number;
  ink: Ink;
}

const AXIS_PX = 18;

export function drawEvents(canvas: HTMLCanvasElement, scene: Scene): void {
  const { width, height, ink, span, store } = scene;
  const ctx = fit(canvas, width, height);
  if (!ctx) return;
  const lane = height - AXIS_PX;
  drawAxis(ctx, scene, lane);
  drawMarks(ctx, { left: GUTTER, top: 0, width: plotWidth(width), height: lane }, span, store, ink, 1);
  ctx.fillStyle = ink.muted;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillText("events", GUTTER - 6, lane / 2);
  ctx.save();
  ctx.beginPath();
  ctx.rect(GUTTER, 0, plotWidth(width), lane);
  ctx.clip();
  let free = GUTTER;
  const marks = marksIn(store, span);
  marks.forEach((mark, i) => {
    const next = marks[i + 1];
    const x = Math.max(GUTTER + 5, toX(mark.t, span, width));
    const room = (next ? toX(next.t, span, width) : width - RIGHT) - x - 16;
    free = drawEvent(ctx, ink, mark, { x, y: lane / 2, room, free, span, width });
  });
  ctx.restore();
}

interface EventPlace {
  x: number;
  y: number;
  room: number;
  free: number;
  span: Span;
  width: number;
}

function drawEvent(ctx: CanvasRenderingContext2D, ink: Ink, mark: Mark, at: EventPlace): number {
  const color = mark.level === "error" ? ink.reject : mark.level === "warn" ? ink.defer : ink.muted;
  ctx.fillStyle = color;
  if (mark.to !== undefined) {
    const end = toX(mark.to, at.span, at.width);
    ctx.fillStyle = alpha(color, 0.5);
    ctx.fillRect(at.x, at.y + 5, Math.max(2, end - at.x), 3);
    ctx.fillStyle = color;
  }
  glyph(ctx, mark, at.x, at.y);
  const from = at.x + 9;
  const text = shorten(ctx, mark.text, at.room);
  if (from < at.free || text === "") return Math.max(at.free, at.x + 8);
  ctx.fillStyle = mark.level === "info" ? ink.muted : ink.text;
  ctx.textAlign = "left";
  ctx.fillText(text, from, at.y);
  return from + ctx.measureText(text).width + 8;
}

/** Policy ▲, engine ■, restart ◆, everything else ●: told apart without colour. */
function glyph(ctx: CanvasRenderingContext2D, mark: Mark, x: number, y: number): void {
  ctx.beginPath();
  if (mark.kind === "policy") {
    ctx.moveTo(x, y - 5);
    ctx.lineTo(x + 5, y + 4);
    ctx.lineTo(x - 5, y + 4);
  } else if (mark.kind === "engine") ctx.rect(x - 4, y - 4, 8, 8);
  else if (mark.kind === "restart") {
    ctx.moveTo(x, y - 6);
    ctx.lineTo(x + 5, y);
    ctx.lineTo(x, y + 6);
    ctx.lineTo(x - 5, y);
  } else ctx.arc(x, y, 3.5, 0, Math.PI * 2);
  ctx.fill();
}

function shorten(ctx: CanvasRenderingContext2D, text: string, room: number): string {
  if (room < 24) return "";
  if (ctx.measureText(text).width <= room) return text;
  let cut = text;
  while (cut.length > 2 && ctx.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
  return cut.length > 4 ? `${cut.trimEnd()}…` : "";
}

function drawAxis(ctx: CanvasRenderingContext2D, scene: Scene, lane: number): void {
  const { ink, span, width } = scene;
  ctx.strokeStyle = ink.grid;
  ctx.lineWidth = 1;
  ctx.font = ink.font;
  ctx.beginPath();
  for (const t of timeTicks(span, width)) {
    const x = Math.round(toX(t, span, width)) + 0.5;
    ctx.moveTo(x, 0);
    ctx.lineTo(x, lane + 3);
  }
  ctx.moveTo(GUTTER, lane + 0.5);
  ctx.lineTo(width - RIGHT, lane + 0.5);
  ctx.stroke();
  ctx.fillStyle = ink.muted;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "center";
  for (const t of timeTicks(span, width)) {
    const x = toX(t, span, width);
    if (x > width - RIGHT - 8) continue;
    ctx.fillText(clock(t, false), x, lane + AXIS_PX);
  }
}

/** The whole ring's arrivals as a sparkline, with the part on view marked. */
export function drawScrub(canvas: HTMLCanvasElement, scene: Scene & { ring: Span }): void {
  const { width, height, ink, span, ring, store } = scene;
  const ctx = fit(canvas, width, height);
  if (!ctx) return;
  const step = Math.max(1000, Math.ceil((ring.end - ring.start) / plotWidth(width) / 250) * 250 * 3);
  const buckets = bucketDecisions(store, ring.start, ring.end, step);
  const rates = (t: number) => store.gauge(store.rows.rowAt(t + step), "arrivals_rate") || 0;
  const top = buckets.list.reduce(
    (m, b, i) => Math.max(m, b.admit + b.defer + b.reject, rates(buckets.start + i * step) * (step / 1000)),
    1,
  );
  const left = toX(Math.max(span.start, ring.start), ring, width);
  const right = toX(span.end, ring, width);
  ctx.fillStyle = alpha(ink.admit, 0.14);
  ctx.fillRect(left, 0, Math.max(2, right - left), height);
  buckets.list.forEach((b, i) => {
    const x = toX(buckets.start + i * step, ring, width);
    const w = Math.max(1, toX(buckets.start + (i + 1) * step, ring, width) - x - 0.5);
    const refused = b.defer + b.reject;
    const scale = (height - 4) / top;
    if (x < GUTTER - w) return;
    // Before the first decision that was told, the rate alone is known.
    const told = buckets.start + i * step >= store.knownFrom;
    const all = told ? b.admit + refused : Math.min(top, rates(buckets.start + i * step) * (step / 1000));
    ctx.fillStyle = alpha(ink.muted, told ? 0.55 : 0.3);
    ctx.fillRect(x, height - 1 - all * scale, w, (all - (told ? refused : 0)) * scale);
    if (!told) return;
    ctx.fillStyle = ink.defer;
    ctx.fillRect(x, height - 1 - refused * scale, w, refused * scale);
  });
  ctx.fillStyle = ink.text;
  ctx.fillRect(Math.min(right - 1, width - RIGHT - 2), 0, 2, height);
  ctx.fillStyle = ink.muted;
  ctx.font = ink.font;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillText("15 min", GUTTER - 6, height / 2);
}
