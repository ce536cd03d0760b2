// Column rings: fixed memory for gauge rows and decisions, however long the page stays open.

/** Gauge rows on one rising time axis. A cell that is not known is NaN. */
export class RowRing {
  readonly capacity: number;
  readonly width: number;
  /** Rows ever pushed; a row's absolute number is its index in that count. */
  total = 0;
  private readonly t: Float64Array;
  private readonly columns: Float64Array[];

  constructor(capacity: number, width: number) {
    this.capacity = capacity;
    this.width = width;
    this.t = new Float64Array(capacity);
    this.columns = Array.from({ length: width }, () => new Float64Array(capacity));
  }

  /** Absolute number of the oldest row still kept. */
  get first(): number {
    return Math.max(0, this.total - this.capacity);
  }

  get length(): number {
    return this.total - this.first;
  }

  push(t: number, cells: ArrayLike<number | null | undefined>): void {
    const slot = this.total % this.capacity;
    this.t[slot] = t;
    for (let c = 0; c < this.width; c++) {
      const column = this.columns[c];
      if (column) column[slot] = cells[c] ?? Number.NaN;
    }
    this.total++;
  }

  /** Milliseconds since the epoch of row abs; NaN outside the ring. */
  time(abs: number): number {
    if (abs < this.first || abs >= this.total) return Number.NaN;
    return this.t[abs % this.capacity] ?? Number.NaN;
  }

  cell(abs: number, column: number): number {
    if (abs < this.first || abs >= this.total) return Number.NaN;
    return this.columns[column]?.[abs % this.capacity] ?? Number.NaN;
  }

  /** First row whose time is not before t; total when there is none. */
  lowerBound(t: number): number {
    let lo = this.first;
    let hi = this.total;
    while (lo < hi) {
      const mid = (lo + hi) >>> 1;
      if ((this.t[mid % this.capacity] ?? 0) < t) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  }

  /** Last row at or before t; -1 when there is none. */
  rowAt(t: number): number {
    const abs = this.lowerBound(t + 0.5) - 1;
    return abs >= this.first ? abs : -1;
  }

  get lastTime(): number {
    return this.total === 0 ? Number.NaN : this.time(this.total - 1);
  }

  get firstTime(): number {
    return this.total === 0 ? Number.NaN : this.time(this.first);
  }

  /** Bytes held by the columns. */
  get bytes(): number {
    return (this.width + 1) * this.capacity * 8;
  }
}

/** How an admitted request ended, as far as the viewer knows. */
export const FATE = { unknown: 0, met: 1, missed: 2 } as const;

/** Numeric columns of the decision ring. */
export const DECISION_COLUMNS = [
  "verdict",
  "reason",
  "status",
  "tenant",
  "cls",
  "attempt",
  "prompt",
  "output",
  "reserved",
  "retryAfter",
  "held",
  "kv",
  "waiting",
  "counted",
  "fate",
  "ending",
  "endStatus",
  "ttft",
  "tpot",
  "totalMs",
  "promptActual",
  "outputActual",
] as const;
export type DecisionColumn = (typeof DECISION_COLUMNS)[number];
export type DecisionCells = Partial<Record<DecisionColumn, number>>;

/** Decisions in order of arrival, found again by id when their outcome comes. */
export class DecisionRing {
  readonly capacity: number;
  total = 0;
  private readonly t: Float64Array;
  private readonly columns: Record<DecisionColumn, Float32Array>;
  private readonly ids: string[];
  private readonly sessions: string[];
  private readonly byId = new Map<string, number>();

  constructor(capacity: number) {
    this.capacity = capacity;
    this.t = new Float64Array(capacity);
    this.columns = Object.fromEntries(DECISION_COLUMNS.map((name) => [name, new Float32Array(capacity)])) as Record<
      DecisionColumn,
      Float32Array
    >;
    this.ids = new Array<string>(capacity).fill("");
    this.sessions = new Array<string>(capacity).fill("");
  }

  get first(): number {
    return Math.max(0, this.total - this.capacity);
  }

  get length(): number {
    return this.total - this.first;
  }

  /** Adds a decision; an id that is already there is left alone and -1 returned. */
  push(t: number, id: string, session: string, cells: DecisionCells): number {
    if (this.byId.has(id)) return -1;
    const abs = this.total;
    const slot = abs % this.capacity;
    if (abs >= this.capacity) this.byId.delete(this.ids[slot] ?? "");
    this.t[slot] = t;
    this.ids[slot] = id;
    this.sessions[slot] = session;
    for (const name of DECISION_COLUMNS) this.columns[name][slot] = cells[name] ?? Number.NaN;
    this.byId.set(id, abs);
    this.total++;
    return abs;
  }

  /** A ring with the given decisions put in front of these, as far as there is room. */
  after(older: DecisionRing): DecisionRing {
    const out = new DecisionRing(this.capacity);
    const room = Math.max(0, this.capacity - this.length);
    for (let abs = Math.max(older.first, older.total - room); abs < older.total; abs++) out.copy(older, abs);
    for (let abs = this.first; abs < this.total; abs++) out.copy(this, abs);
    return out;
  }

  private copy(from: DecisionRing, abs: number): void {
    const cells = Object.fromEntries(DECISION_COLUMNS.map((name) => [name, from.get(abs, name)])) as DecisionCells;
    this.push(from.time(abs), from.id(abs), from.session(abs), cells);
  }

  /** Changes cells of a decision still in the ring; false when it has left. */
  amend(id: string, cells: DecisionCells): boolean {
    const abs = this.byId.get(id);
    if (abs === undefined) return false;
    const slot = abs % this.capacity;
    for (const [name, value] of Object.entries(cells)) this.columns[name as DecisionColumn][slot] = value;
    return true;
  }

  has(abs: number): boolean {
    return abs >= this.first && abs < this.total;
  }

  find(id: string): number {
    return this.byId.get(id) ?? -1;
  }

  time(abs: number): number {
    return this.has(abs) ? (this.t[abs % this.capacity] ?? Number.NaN) : Number.NaN;
  }

  get(abs: number, column: DecisionColumn): number {
    return this.has(abs) ? (this.columns[column][abs % this.capacity] ?? Number.NaN) : Number.NaN;
  }

  id(abs: number): string {
    return this.has(abs) ? (this.ids[abs % this.capacity] ?? "") : "";
  }

  session(abs: number): string {
    return this.has(abs) ? (this.sessions[abs % this.capacity] ?? "") : "";
  }

  /** First decision whose time is not before t, taking the ring as ordered by time. */
  lowerBound(t: number): number {
    let lo = this.first;
    let hi = this.total;
    while (lo < hi) {
      const mid = (lo + hi) >>> 1;
      if ((this.t[mid % this.capacity] ?? 0) < t) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  }

  /** Ids held in the index; equals length, and a test holds it to that. */
  get indexed(): number {
    return this.byId.size;
  }
}

/** Small whole numbers for strings that repeat (tenants, classes, reasons, endings). */
export class Interner {
  private readonly words: string[] = [];
  private readonly numbers = new Map<string, number>();

  intern(word: string): number {
    const known = this.numbers.get(word);
    if (known !== undefined) return known;
    const n = this.words.length;
    this.words.push(word);
    this.numbers.set(word, n);
    return n;
  }

  word(n: number): string {
    return this.words[n] ?? "";
  }
}
