// What each chart of the stack shows. Parts are stacked only where they add up to a fixed capacity.
import type { Reader } from "../core/decimate";
import { bytes, duration, percent, si } from "../core/format";
import type { Store } from "../core/store";
import type { Ink } from "../theme";
import { niceCeil } from "./geometry";

export interface SeriesDef {
  id: string;
  label: string;
  /** What it is, for hover and for the table. */
  doc: string;
  unit: string;
  color: (ink: Ink) => string;
  read: (store: Store) => Reader;
  /** Drawn value where it is not the told value (stacks). */
  plot?: (store: Store) => Reader;
  width?: number;
  dash?: number[];
  fill?: number;
  /** Fills down to the series of this id, with this opacity; hatched when the band is not ours. */
  band?: { to: string; alpha: number; hatched?: boolean };
  /** A limit: dashed, labelled at the right edge. */
  limit?: boolean;
}

export interface ChartDef {
  id: string;
  title: string;
  doc: string;
  series: SeriesDef[];
  log?: boolean;
  range(max: number, min: number, store: Store): [number, number];
  ticks(min: number, max: number): number[];
  tick(v: number): string;
}

const gauge =
  (name: string) =>
  (store: Store): Reader => {
    const column = store.column(name);
    return (abs) => (column < 0 ? Number.NaN : store.rows.cell(abs, column));
  };

const promised = (store: Store): Reader => {
  const used = gauge("kv_used")(store);
  const reserved = gauge("kv_reserved")(store);
  return (abs) => {
    const r = reserved(abs);
    const u = used(abs);
    return Number.isNaN(r) ? r : Number.isNaN(u) ? r : Math.max(r, u);
  };
};

export const KV: ChartDef = {
  id: "kv",
  title: "KV cache",
  doc: "Share of the engine's KV cache in use, and what the gate has promised to requests in flight",
  series: [
    {
      id: "kv_limit",
      label: "limit",
      doc: "the running policy's max_kv_used",
      unit: "fraction",
      color: (i) => i.limit,
      read: gauge("max_kv_used"),
      limit: true,
    },
    {
      id: "kv_promised",
      label: "promised",
      doc: "tokens reserved by the gate over capacity; the part above “used” is not yet visible in the engine",
      unit: "fraction",
      color: (i) => i.s2,
      read: gauge("kv_reserved"),
      plot: promised,
      width: 1,
      band: { to: "kv_used", alpha: 0.2 },
    },
    {
      id: "kv_used",
      label: "used",
      doc: "blocks in use, as the engine says",
      unit: "fraction",
      color: (i) => i.s1,
      read: gauge("kv_used"),
      width: 1.5,
      fill: 0.22,
    },
  ],
  range: (max) => [0, Math.max(1, max) * 1.04],
  ticks: () => [0, 0.5, 1],
  tick: (v) => percent(v, 0),
};

const gpuOther = (store: Store): Reader => {
  const used = gauge("gpu_memory_used_bytes")(store);
  const engine = gauge("gpu_memory_engine_bytes")(store);
  return (abs) => used(abs) - engine(abs);
};
const gpuFree = (store: Store): Reader => {
  const used = gauge("gpu_memory_used_bytes")(store);
  const total = gauge("gpu_memory_total_bytes")(store);
  return (abs) => total(abs) - used(abs);
};

export const GPU_MEMORY: ChartDef = {
  id: "gpu",
  title: "GPU memory",
  doc: "Memory of all devices as NVML tells it: the engine's processes, everything else, free",
  series: [
    {
      id: "gpu_total",
      label: "free",
      doc: "total minus used; the line is the total",
      unit: "bytes",
      color: (i) => i.faint,
      read: gpuFree,
      plot: gauge("gpu_memory_total_bytes"),
      width: 1,
    },
    {
      id: "gpu_used",
      label: "other",
      doc: "used by processes that are not the engine's, hatched",
      unit: "bytes",
      color: (i) => i.muted,
      read: gpuOther,
      plot: gauge("gpu_memory_used_bytes"),
      width: 1,
      band: { to: "gpu_engine", alpha: 0.5, hatched: true },
    },
    {
      id: "gpu_engine",
      label: "engine",
      doc: "held by the engine's own processes",
      unit: "bytes",
      color: (i) => i.s3,
      read: gauge("gpu_memory_engine_bytes"),
      width: 1.5,
      fill: 0.25,
    },
  ],
  range: (max) => [0, max > 0 ? max * 1.04 : 1],
  ticks: (_, max) => {
    const total = max / 1.04;
    return [0, total / 2, total];
  },
  tick: (v) => (v === 0 ? "0" : bytes(v)),
};

export const QUEUE: ChartDef = {
  id: "queue",
  title: "Requests",
  doc: "Requests running and waiting inside the engine, in flight by the ledger, and held in the gate",
  series: [
    {
      id: "q_limit",
      label: "limit",
      doc: "the running policy's max_waiting",
      unit: "requests",
      color: (i) => i.limit,
      read: gauge("max_waiting"),
      limit: true,
    },
    {
      id: "q_flight_limit",
      label: "max in flight",
      doc: "the running policy's max_in_flight",
      unit: "requests",
      color: (i) => i.limit,
      read: gauge("max_in_flight"),
      limit: true,
    },
    {
      id: "in_flight",
      label: "in flight",
      doc: "requests that the ledger knows to be at the engine",
      unit: "requests",
      color: (i) => i.muted,
      read: gauge("in_flight"),
      width: 1,
      dash: [3, 2],
    },
    {
      id: "running",
      label: "running",
      doc: "in the engine's batch, as the engine says",
      unit: "requests",
      color: (i) => i.s1,
      read: gauge("running"),
      width: 1.5,
      fill: 0.1,
    },
    {
      id: "waiting",
      label: "waiting",
      doc: "queued inside the engine, as the engine says",
      unit: "requests",
      color: (i) => i.s4,
      read: gauge("waiting"),
      width: 1.5,
    },
    {
      id: "held",
      label: "held",
      doc: "waiting in the gate",
      unit: "requests",
      color: (i) => i.defer,
      read: gauge("held"),
      width: 1.5,
    },
  ],
  range: (max) => [0, niceCeil(Math.max(4, max)) * 1.04],
  ticks: (_, max) => {
    const top = Math.round((max / 1.04) * 100) / 100;
    return [0, top / 2, top];
  },
  tick: (v) => si(v),
};

const slo = (pick: "slo_ttft_ms" | "slo_tpot_ms") => (store: Store) => {
  const value = store.hello?.[pick] ?? Number.NaN;
  return () => value;
};

export const LATENCY: ChartDef = {
  id: "latency",
  title: "Latency",
  doc: "Admitted requests of the last 10 s: time to first token and time per output token; log scale",
  log: true,
  series: [
    {
      id: "slo_ttft",
      label: "TTFT SLO",
      doc: "the default class's limit on time to first token",
      unit: "ms",
      color: (i) => i.limit,
      read: slo("slo_ttft_ms"),
      limit: true,
    },
    {
      id: "slo_tpot",
      label: "TPOT SLO",
      doc: "the default class's limit on time per output token",
      unit: "ms",
      color: (i) => i.limit,
      read: slo("slo_tpot_ms"),
      limit: true,
    },
    {
      id: "ttft_p95",
      label: "TTFT p95",
      doc: "95 of 100 first tokens came sooner",
      unit: "ms",
      color: (i) => i.s1,
      read: gauge("ttft_p95_ms"),
      width: 1.5,
      band: { to: "ttft_p50", alpha: 0.16 },
    },
    {
      id: "ttft_p50",
      label: "p50",
      doc: "half of the first tokens came sooner",
      unit: "ms",
      color: (i) => i.s1,
      read: gauge("ttft_p50_ms"),
      width: 1,
      dash: [3, 2],
    },
    {
      id: "tpot_p95",
      label: "TPOT p95",
      doc: "95 of 100 requests had less time between tokens",
      unit: "ms",
      color: (i) => i.s4,
      read: gauge("tpot_p95_ms"),
      width: 1.5,
      band: { to: "tpot_p50", alpha: 0.14 },
    },
    {
      id: "tpot_p50",
      label: "p50",
      doc: "half of the requests had less time between tokens",
      unit: "ms",
      color: (i) => i.s4,
      read: gauge("tpot_p50_ms"),
      width: 1,
      dash: [3, 2],
    },
  ],
  range: (max, min) => {
    const top = 10 ** Math.ceil(Math.log10(Math.max(max, 1000) * 1.05));
    const low = 10 ** Math.floor(Math.log10(Math.max(0.1, Math.min(min, 100))));
    return [low, top];
  },
  ticks: (min, max) => {
    const out: number[] = [];
    for (let v = min; v <= max * 1.001; v *= 10) out.push(v);
    return out;
  },
  tick: (v) => duration(v).replace(/\.0+(?=\D)/, ""),
};

export const CHARTS = [KV, GPU_MEMORY, QUEUE, LATENCY];
