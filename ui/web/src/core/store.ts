// Everything the viewer knows, built from stream messages alone. Reads no clock, no DOM, no network.
import type {
  Cell,
  DecisionItem,
  EventMessage,
  Frame,
  Gap,
  Gauge,
  Hello,
  HistoryRows,
  Message,
  PastEvent,
  PolicyInfo,
  ReasonEntry,
  Snap,
  Status,
} from "../api";
import { STREAM_VERSION, verdictIndex } from "../api";
import { type DecisionCells, DecisionRing, FATE, Interner, RowRing } from "./ring";

/** 15 minutes at 10 Hz. */
export const ROW_CAPACITY = 9000;
export const DECISION_CAPACITY = 20_000;
const MARK_CAPACITY = 400;
/** Decisions in one snap, at most. */
const SNAP_DECISIONS = 200;
/** A pause between two rows that is longer than this is a gap, not a held value. */
export const GAP_MS = 3000;

export type MarkKind = "restart" | "policy" | "engine" | "scrape" | "lost" | "event";

/** One thing in the events lane. */
export interface Mark {
  t: number;
  /** End of a mark that lasts; absent for an instant. */
  to?: number;
  kind: MarkKind;
  level: string;
  text: string;
}

const COUNTS = ["n_admit", "n_defer", "n_reject"] as const;

export class Store {
  hello: Hello | null = null;
  status: Status | null = null;
  rows: RowRing;
  decisions = new DecisionRing(DECISION_CAPACITY);
  marks: Mark[] = [];
  tenants = new Interner();
  classes = new Interner();
  reasons = new Interner();
  endings = new Interner();
  engine = "";
  rev = "";
  /** Why the server said good-bye, "" while it has not. */
  bye = "";
  /** Frames lost to this viewer. */
  dropped = 0;
  lastSeq = 0;
  /** Grows with every message that changed something. */
  version = 0;
  /** Grows when decisions were put in front of others, so that their absolute numbers mean something else. */
  renumbered = 0;
  /** Decisions before this instant were never told to this viewer, ms since the epoch. */
  knownFrom = 0;
  /** lastSeq before the last snap, so that a gap told after it can still be counted. */
  private beforeSnap = 0;
  private gauges: Gauge[] = [];
  private columns = new Map<string, number>();
  private strings: string[] = [];
  private entries = new Map<string, ReasonEntry>();
  private readonly rowCapacity: number;

  constructor(rowCapacity = ROW_CAPACITY) {
    this.rowCapacity = rowCapacity;
    this.rows = new RowRing(rowCapacity, COUNTS.length);
  }

  /** Time of the newest row, NaN before the first one. */
  get lastT(): number {
    return this.rows.lastTime;
  }

  /** Applies one message. "reload" means that the server speaks another version of the stream. */
  apply(message: Message): "ok" | "reload" {
    if (message.v !== STREAM_VERSION) return "reload";
    switch (message.kind) {
      case "hello":
        this.applyHello(message);
        break;
      case "snap":
        this.applySnap(message);
        break;
      case "frame":
        this.applyFrame(message);
        break;
      case "gap":
        this.applyGap(message);
        break;
      case "event":
        this.applyEvent(message);
        break;
      case "bye":
        this.bye = message.why;
        break;
    }
    this.version++;
    return "ok";
  }

  setStatus(status: Status): void {
    this.status = status;
    const pool = this.pool;
    // A frame a second says it again; this answers while frames are missing.
    if (pool) this.engine = pool.engine.state;
    this.version++;
  }

  get pool() {
    const pools = this.status?.pools ?? [];
    return pools.find((p) => p.model === this.hello?.pool) ?? pools[0] ?? null;
  }

  get policy(): PolicyInfo | null {
    return this.pool?.policy ?? this.hello?.policy ?? null;
  }

  get simulated(): boolean {
    return this.hello?.simulated ?? this.pool?.engine.simulated ?? false;
  }

  /** Column of a gauge, -1 when the server does not send it. */
  column(name: string): number {
    return this.columns.get(name) ?? -1;
  }

  unit(name: string): string {
    return this.gauges.find((g) => g.name === name)?.unit ?? "";
  }

  gauge(abs: number, name: string): number {
    const column = this.column(name);
    return column < 0 ? Number.NaN : this.rows.cell(abs, column);
  }

  /** Newest value of a gauge, NaN when not known. */
  latest(name: string): number {
    return this.gauge(this.rows.total - 1, name);
  }

  reason(code: string): ReasonEntry | undefined {
    return this.entries.get(code);
  }

  reasonCodeOf(abs: number): string {
    return this.reasons.word(this.decisions.get(abs, "reason"));
  }

  private applyHello(h: Hello): void {
    const before = this.hello;
    const restarted = before !== null && before.boot_id !== h.boot_id;
    this.shapeRows(h.gauges);
    this.hello = h;
    this.bye = "";
    this.strings = [...(h.strings ?? [])];
    this.entries = new Map(h.reasons.map((e) => [e.code, e]));
    if (restarted) {
      this.lastSeq = 0;
      this.breakLine(this.lastT + 1);
      this.mark({ t: h.t, kind: "restart", level: "warn", text: `admitd restarted (${h.version})` });
    }
    this.rev = h.policy.rev;
  }

  private shapeRows(gauges: Gauge[]): void {
    const same = gauges.length === this.gauges.length && gauges.every((g, i) => g.name === this.gauges[i]?.name);
    if (same && this.columns.size > 0) return;
    const old = this.rows;
    const oldColumns = this.columns;
    this.gauges = gauges;
    const names = [...gauges.map((g) => g.name), ...COUNTS];
    this.columns = new Map(names.map((name, i) => [name, i]));
    this.rows = new RowRing(this.rowCapacity, names.length);
    for (let abs = old.first; abs < old.total; abs++) {
      this.rows.push(
        old.time(abs),
        names.map((name) => old.cell(abs, oldColumns.get(name) ?? -1)),
      );
    }
  }

  private applySnap(s: Snap): void {
    this.setStatus(s.status);
    this.beforeSnap = this.lastSeq;
    this.lastSeq = s.seq;
    this.applyHistory(s.history);
    for (const e of s.events ?? []) {
      if (!this.marks.some((m) => m.t === e.t && m.text === e.text)) this.markEvent(e);
    }
    this.marks.sort((a, b) => a.t - b.t);
    const items = s.decisions ?? [];
    const fresh = this.decisions.length === 0;
    for (const item of [...items].reverse()) this.addItem(this.decisions, item);
    // As many as one snap carries may be all there are, or not.
    if (fresh && items.length >= SNAP_DECISIONS) this.knownFrom = Date.parse(items.at(-1)?.at ?? "") || 0;
  }

  /** Puts older decisions (newest first, as the API lists them) in front of those known; full says that there are more. */
  backfill(items: DecisionItem[], full: boolean): void {
    const oldest = this.decisions.time(this.decisions.first);
    const older = new DecisionRing(DECISION_CAPACITY);
    for (const item of [...items].reverse()) {
      if (Number.isNaN(oldest) || Date.parse(item.at) <= oldest) this.addItem(older, item);
    }
    this.decisions = this.decisions.after(older);
    this.knownFrom = full ? Date.parse(items.at(-1)?.at ?? "") || this.knownFrom : 0;
    this.renumbered++;
    this.version++;
  }

  private applyHistory(h: HistoryRows): void {
    const times = h.t_ms ?? [];
    const names = (h.gauges ?? this.gauges).map((g) => g.name);
    const to = names.map((name) => this.column(name));
    times.forEach((t, i) => {
      if (t <= this.lastT) return;
      const cells: (number | null)[] = new Array(this.rows.width).fill(null);
      to.forEach((column, k) => {
        if (column >= 0) cells[column] = h.rows?.[i]?.[k] ?? null;
      });
      this.pushRow(t, cells);
    });
  }

  private pushRow(t: number, cells: (number | null)[]): void {
    if (t - this.lastT > GAP_MS) this.breakLine(this.lastT + 1);
    this.rows.push(t, cells);
  }

  private breakLine(t: number): void {
    if (Number.isFinite(t)) this.rows.push(t, []);
  }

  private applyFrame(f: Frame): void {
    this.intern(f);
    const late = f.seq <= this.lastSeq;
    if (!late && this.lastSeq > 0 && f.seq > this.lastSeq + 1) this.lose(this.lastSeq + 1, f.seq - 1, f.t);
    if (!late) {
      const cells = [...f.g];
      cells.length = this.gauges.length;
      cells.push(...f.n);
      if (!(f.t <= this.lastT)) this.pushRow(f.t, cells);
      this.lastSeq = f.seq;
      this.engine = f.e || this.engine;
      this.noteRevision(f);
    }
    for (const d of f.d ?? []) this.addRow(f.t, d);
    for (const o of f.o ?? []) this.endRow(o);
  }

  private noteRevision(f: Frame): void {
    if (f.r && this.rev && f.r !== this.rev) {
      this.mark({ t: f.t, kind: "policy", level: "info", text: `policy ${f.r}` });
    }
    this.rev = f.r || this.rev;
  }

  private intern(f: Frame | Gap): void {
    if (!f.s) return;
    const base = f.sb ?? this.strings.length;
    f.s.forEach((word, i) => {
      this.strings[base + i] = word;
    });
  }

  private word(cell: Cell | undefined): string {
    if (typeof cell === "number") return this.strings[cell] ?? "";
    return typeof cell === "string" ? cell : "";
  }

  private addRow(frameT: number, d: Cell[]): void {
    const fields = this.hello?.decision_fields ?? [];
    const cell = (name: string) => d[fields.indexOf(name)];
    const num = (name: string) => number(cell(name));
    const verdict = this.verdictOf(cell("verdict"));
    const code = this.hello?.reasons[num("reason")]?.code ?? this.word(cell("reason"));
    this.decisions.push(frameT - (num("t") || 0), String(cell("id")), this.word(cell("session")), {
      verdict,
      reason: this.reasons.intern(code),
      status: num("status"),
      tenant: this.tenants.intern(this.word(cell("tenant"))),
      cls: this.classes.intern(this.word(cell("class"))),
      attempt: num("attempt"),
      prompt: num("prompt_tokens"),
      output: num("output_tokens"),
      reserved: num("reserved_tokens"),
      retryAfter: num("retry_after_ms"),
      held: num("held_ms"),
      kv: num("kv_used"),
      waiting: num("waiting"),
      counted: 1,
      fate: FATE.unknown,
    });
  }

  private verdictOf(cell: Cell | undefined): number {
    const word = typeof cell === "number" ? this.hello?.verdicts[cell] : cell;
    return verdictIndex(word);
  }

  private endRow(o: Cell[]): void {
    const fields = this.hello?.outcome_fields ?? [];
    const cell = (name: string) => o[fields.indexOf(name)];
    const num = (name: string) => number(cell(name));
    this.decisions.amend(String(cell("id")), {
      fate: num("slo_met") === 1 ? FATE.met : FATE.missed,
      ending: this.endings.intern(this.word(cell("ending"))),
      endStatus: num("status"),
      ttft: num("ttft_ms"),
      tpot: num("tpot_ms"),
      totalMs: num("total_ms"),
      promptActual: num("prompt_tokens"),
      outputActual: num("completion_tokens"),
    });
  }

  private addItem(ring: DecisionRing, item: DecisionItem): void {
    const d = item.decision;
    const signal = (name: string) => d.signals?.find((s) => s.name === name)?.value ?? Number.NaN;
    ring.push(Date.parse(item.at), d.id, d.session ?? "", {
      verdict: verdictIndex(d.verdict),
      reason: this.reasons.intern(d.reason),
      status: d.status ?? Number.NaN,
      tenant: this.tenants.intern(d.tenant),
      cls: this.classes.intern(d.class),
      attempt: d.attempt,
      prompt: d.prompt_tokens_estimated,
      output: d.output_tokens_estimated,
      reserved: d.reserved_tokens,
      retryAfter: d.retry_after_ms ?? Number.NaN,
      held: d.held_ms ?? Number.NaN,
      kv: signal("kv_used"),
      waiting: signal("waiting"),
      counted: 0,
      ...this.outcomeCells(item),
    });
  }

  private outcomeCells(item: DecisionItem): DecisionCells {
    const o = item.outcome;
    if (!o) return { fate: FATE.unknown };
    return {
      fate: o.slo_met ? FATE.met : FATE.missed,
      ending: this.endings.intern(o.ending),
      endStatus: o.status,
      ttft: o.ttft_ms ?? Number.NaN,
      tpot: o.tpot_ms ?? Number.NaN,
      totalMs: o.total_ms,
      promptActual: o.prompt_tokens ?? Number.NaN,
      outputActual: o.completion_tokens ?? Number.NaN,
    };
  }

  private applyGap(g: Gap): void {
    this.intern(g);
    if (g.to <= this.lastSeq) {
      // A snap has refilled the charts already; only what it could not bring back is counted.
      if (this.beforeSnap > 0 && g.from > this.beforeSnap) this.dropped += g.to - g.from + 1;
      return;
    }
    this.lose(Math.max(g.from, this.lastSeq + 1), g.to, g.t);
    this.lastSeq = g.to;
  }

  private lose(from: number, to: number, t: number): void {
    const count = to - from + 1;
    if (count <= 0) return;
    this.dropped += count;
    const since = this.lastT;
    this.breakLine(since + 1);
    this.mark({
      t: Number.isFinite(since) ? since : t,
      to: t,
      kind: "lost",
      level: "warn",
      text: `${count} ${count === 1 ? "frame" : "frames"} lost to this viewer`,
    });
  }

  private applyEvent(e: EventMessage): void {
    if (e.seq <= this.lastSeq) return;
    if (this.lastSeq > 0 && e.seq > this.lastSeq + 1) this.lose(this.lastSeq + 1, e.seq - 1, e.t);
    this.lastSeq = e.seq;
    this.markEvent(e);
  }

  private markEvent(e: PastEvent): void {
    const kind: MarkKind =
      e.name.startsWith("policy") || e.name.startsWith("config")
        ? "policy"
        : e.name.startsWith("engine")
          ? "engine"
          : e.name.startsWith("scrape")
            ? "scrape"
            : e.name === "start"
              ? "restart"
              : "event";
    const twin = this.marks.find((m) => m.kind === kind && Math.abs(m.t - e.t) < 1500 && m.text.startsWith("policy "));
    if (twin && kind === "policy") twin.text = e.text;
    else this.mark({ t: e.t, kind, level: e.level, text: e.text });
  }

  private mark(m: Mark): void {
    this.marks.push(m);
    if (this.marks.length > MARK_CAPACITY) this.marks.splice(0, this.marks.length - MARK_CAPACITY);
  }
}

function number(cell: Cell | undefined): number {
  if (typeof cell === "number") return cell;
  if (typeof cell === "boolean") return cell ? 1 : 0;
  return Number.NaN;
}
