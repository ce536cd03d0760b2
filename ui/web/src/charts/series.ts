// One uPlot of the stack. It draws; the shared cursor, the legend and the text alternative live outside it.
import uPlot from "uplot";
import { type Plot, plotRows } from "../core/decimate";
import type { Store } from "../core/store";
import { alpha, type Ink, inks, themeGeneration } from "../theme";
import type { ChartDef, SeriesDef } from "./defs";
import { GUTTER, plotWidth, RIGHT, type Span, timeTicks } from "./geometry";
import { drawMarks } from "./marks";

export class SeriesChart {
  private readonly host: HTMLElement;
  private readonly def: ChartDef;
  private readonly store: Store;
  private plot: uPlot | null = null;
  private generation = -1;
  private span: Span = { start: 0, end: 1 };
  private size = { width: 0, height: 0 };
  private yRange: [number, number] = [0, 1];

  constructor(host: HTMLElement, def: ChartDef, store: Store) {
    this.host = host;
    this.def = def;
    this.store = store;
  }

  destroy(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  draw(span: Span, width: number, height: number): void {
    if (width < GUTTER + RIGHT + 20 || height < 20) return;
    this.span = span;
    if (this.generation !== themeGeneration()) this.destroy();
    if (!this.plot) this.build(width, height);
    const plot = this.plot;
    if (!plot) return;
    if (this.size.width !== width || this.size.height !== height) {
      this.size = { width, height };
      plot.setSize(this.size);
    }
    const data = this.data(width);
    this.yRange = this.range(data);
    plot.batch(() => {
      plot.setData(data as uPlot.AlignedData, false);
      plot.setScale("x", { min: span.start / 1000, max: span.end / 1000 });
      plot.setScale("y", { min: this.yRange[0], max: this.yRange[1] });
    });
  }

  /** Rows of the span and one before it, so that the first step reaches the left edge. */
  private data(width: number): Plot {
    const rows = this.store.rows;
    const from = Math.max(rows.first, rows.lowerBound(this.span.start) - 1);
    const to = rows.lowerBound(this.span.end + 1);
    const readers = this.def.series.map((s) => (s.plot ?? s.read)(this.store));
    const data = plotRows(rows, from, to, plotWidth(width), readers);
    if (data[0].length === 0) data[0].push(this.span.end / 1000);
    for (let i = 1; i < data.length; i++) if (data[i]?.length === 0) (data[i] as (number | null)[]).push(null);
    if (this.def.log) dropNonPositive(data);
    return data;
  }

  private range(data: Plot): [number, number] {
    let max = Number.NEGATIVE_INFINITY;
    let min = Number.POSITIVE_INFINITY;
    for (let i = 1; i < data.length; i++) {
      for (const v of data[i] ?? []) {
        if (v === null) continue;
        if (v > max) max = v;
        if (v < min) min = v;
      }
    }
    return this.def.range(Number.isFinite(max) ? max : 0, Number.isFinite(min) ? min : 1, this.store);
  }

  private build(width: number, height: number): void {
    this.generation = themeGeneration();
    const ink = inks();
    this.host.replaceChildren();
    this.size = { width, height };
    const options: uPlot.Options = {
      width,
      height,
      padding: [4, RIGHT, 4, 0],
      cursor: { show: false },
      legend: { show: false },
      scales: {
        x: { time: false, auto: false },
        y: { auto: false, distr: this.def.log ? 3 : 1, range: (_, min, max) => [min ?? 0, max ?? 1] },
      },
      axes: [this.xAxis(ink), this.yAxis(ink)],
      series: [{}, ...this.def.series.map((s) => seriesOptions(s, ink))],
      bands: this.bands(ink),
      hooks: { drawClear: [(u) => this.under(u)], draw: [(u) => this.over(u)] },
    };
    this.plot = new uPlot(
      options,
      [[0], ...this.def.series.map(() => [null])] as unknown as uPlot.AlignedData,
      this.host,
    );
  }

  private xAxis(ink: Ink): uPlot.Axis {
    return {
      size: 0,
      gap: 0,
      ticks: { show: false },
      grid: { stroke: ink.grid, width: 1 },
      splits: () => timeTicks(this.span, this.size.width).map((t) => t / 1000),
      values: (_, splits) => splits.map(() => ""),
    };
  }

  private yAxis(ink: Ink): uPlot.Axis {
    return {
      size: GUTTER,
      gap: 6,
      stroke: ink.muted,
      font: ink.font,
      ticks: { show: false },
      grid: { stroke: ink.grid, width: 1 },
      splits: (_, __, min, max) => this.def.ticks(min, max),
      filter: (_, splits) => splits,
      values: (_, splits) => splits.map((v) => this.def.tick(v)),
    };
  }

  private bands(ink: Ink): uPlot.Band[] {
    const at = (id: string) => this.def.series.findIndex((s) => s.id === id) + 1;
    return this.def.series.flatMap((s) => {
      const band = s.band;
      if (!band) return [];
      const color = s.color(ink);
      const fill = band.hatched
        ? (u: uPlot) => pattern(u.ctx, alpha(color, band.alpha)) ?? "transparent"
        : () => alpha(color, band.alpha);
      return [{ series: [at(s.id), at(band.to)], fill } as uPlot.Band];
    });
  }

  private under(u: uPlot): void {
    const ratio = devicePixelRatio || 1;
    drawMarks(u.ctx, u.bbox, this.span, this.store, inks(), ratio);
  }

  /** Labels of the limits, at the right end of their lines. */
  private over(u: uPlot): void {
    const ratio = devicePixelRatio || 1;
    const ink = inks();
    const ctx = u.ctx;
    ctx.save();
    ctx.font = scaled(ink.font, ratio);
    ctx.textAlign = "right";
    ctx.lineJoin = "round";
    this.def.series.forEach((s, i) => {
      if (!s.limit) return;
      const value = lastKnown(u.data[i + 1]);
      if (value === null) return;
      const y = u.valToPos(value, "y", true);
      const above = y - u.bbox.top > 16 * ratio;
      const text = `${s.label} ${this.def.tick(value)}`;
      const x = u.bbox.left + u.bbox.width - 4 * ratio;
      ctx.textBaseline = above ? "bottom" : "top";
      ctx.lineWidth = 3 * ratio;
      ctx.strokeStyle = ink.surface;
      ctx.strokeText(text, x, y + (above ? -2 : 3) * ratio);
      ctx.fillStyle = ink.limit;
      ctx.fillText(text, x, y + (above ? -2 : 3) * ratio);
    });
    ctx.restore();
  }
}

const stepped = uPlot.paths.stepped?.({ align: 1 });

function seriesOptions(s: SeriesDef, ink: Ink): uPlot.Series {
  const color = s.color(ink);
  const out: uPlot.Series = {
    stroke: s.limit ? alpha(color, 0.8) : color,
    width: s.width ?? 1,
    points: { show: false },
    spanGaps: false,
  };
  if (stepped) out.paths = stepped;
  if (s.limit) out.dash = [5, 4];
  else if (s.dash) out.dash = s.dash;
  if (s.fill) out.fill = alpha(color, s.fill);
  return out;
}

function lastKnown(values: ArrayLike<number | null | undefined> | undefined): number | null {
  if (!values) return null;
  for (let i = values.length - 1; i >= 0; i--) {
    const v = values[i];
    if (typeof v === "number") return v;
  }
  return null;
}

function dropNonPositive(data: Plot): void {
  for (let i = 1; i < data.length; i++) {
    const values = data[i];
    values?.forEach((v, k) => {
      if (v !== null && typeof v === "number" && v <= 0) values[k] = null;
    });
  }
}

function scaled(font: string, ratio: number): string {
  return font.replace(/(\d+(?:\.\d+)?)px/, (_, px) => `${Number(px) * ratio}px`);
}

function pattern(ctx: CanvasRenderingContext2D, color: string): CanvasPattern | null {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const c = tile.getContext("2d");
  if (!c) return null;
  c.strokeStyle = color;
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(-1, 7);
  c.lineTo(7, -1);
  c.moveTo(-1, 1);
  c.lineTo(1, -1);
  c.moveTo(5, 7);
  c.lineTo(7, 5);
  c.stroke();
  return ctx.createPattern(tile, "repeat");
}
