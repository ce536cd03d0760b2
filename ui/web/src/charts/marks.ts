// Marks that go through the whole stack: restarts, policy revisions, stretches that were lost or not scraped.
import type { Mark, Store } from "../core/store";
import { alpha, type Ink } from "../theme";
import type { Span } from "./geometry";

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Draws in the units of the context; unit is the length of one CSS pixel in them. */
export function drawMarks(
  ctx: CanvasRenderingContext2D,
  box: Box,
  span: Span,
  store: Store,
  ink: Ink,
  unit: number,
): void {
  const x = (t: number) => box.left + ((t - span.start) / (span.end - span.start)) * box.width;
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.left, box.top, box.width, box.height);
  ctx.clip();
  for (const mark of store.marks) {
    if ((mark.to ?? mark.t) < span.start || mark.t > span.end) continue;
    if (mark.kind === "lost") hatch(ctx, box, x(mark.t), x(mark.to ?? mark.t), ink, unit);
    else if (mark.kind === "restart") rule(ctx, box, x(mark.t), alpha(ink.reject, 0.9), [], 1.5 * unit);
    else if (mark.kind === "policy") rule(ctx, box, x(mark.t), alpha(ink.text, 0.55), [2 * unit, 3 * unit], unit);
  }
  ctx.restore();
}

function rule(ctx: CanvasRenderingContext2D, box: Box, x: number, color: string, dash: number[], width: number): void {
  ctx.strokeStyle = color;
  ctx.lineWidth = width;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(Math.round(x) + width / 2, box.top);
  ctx.lineTo(Math.round(x) + width / 2, box.top + box.height);
  ctx.stroke();
  ctx.setLineDash([]);
}

export function hatch(ctx: CanvasRenderingContext2D, box: Box, from: number, to: number, ink: Ink, unit: number): void {
  const left = Math.max(from, box.left);
  const right = Math.min(Math.max(to, from + 2 * unit), box.left + box.width);
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, box.top, right - left, box.height);
  ctx.clip();
  ctx.strokeStyle = alpha(ink.muted, 0.35);
  ctx.lineWidth = unit;
  ctx.beginPath();
  for (let x = left - box.height; x < right; x += 6 * unit) {
    ctx.moveTo(x, box.top + box.height);
    ctx.lineTo(x + box.height, box.top);
  }
  ctx.stroke();
  ctx.restore();
}

/** Marks inside a span, oldest first. */
export function marksIn(store: Store, span: Span): Mark[] {
  return store.marks.filter((m) => (m.to ?? m.t) >= span.start && m.t <= span.end);
}
