// Which decisions the list shows: kept up to date step by step, so that 200 decisions a second cost next to nothing.
import { VERDICTS, type Verdict } from "../api";
import type { Filter, Filterable } from "./filter";
import { FATE } from "./ring";
import type { Store } from "./store";

/** A window on one decision of the store, without copying it. */
export class DecisionView implements Filterable {
  abs = 0;
  private readonly store: Store;

  constructor(store: Store, abs = 0) {
    this.store = store;
    this.abs = abs;
  }

  private num(column: Parameters<Store["decisions"]["get"]>[1]): number {
    return this.store.decisions.get(this.abs, column);
  }

  get t(): number {
    return this.store.decisions.time(this.abs);
  }
  get id(): string {
    return this.store.decisions.id(this.abs);
  }
  get session(): string {
    return this.store.decisions.session(this.abs);
  }
  get verdict(): Verdict {
    return VERDICTS[this.num("verdict")] ?? "reject";
  }
  get reason(): string {
    return this.store.reasons.word(this.num("reason"));
  }
  get label(): string {
    return this.store.reason(this.reason)?.label ?? this.reason.replaceAll("_", " ");
  }
  get tenant(): string {
    return this.store.tenants.word(this.num("tenant"));
  }
  get cls(): string {
    return this.store.classes.word(this.num("cls"));
  }
  get status(): number {
    const status = this.num("status");
    return status > 0 ? status : this.num("endStatus");
  }
  get attempt(): number {
    return this.num("attempt");
  }
  get prompt(): number {
    return this.num("prompt");
  }
  get output(): number {
    return this.num("output");
  }
  get reserved(): number {
    return this.num("reserved");
  }
  get retryAfter(): number {
    return this.num("retryAfter");
  }
  get held(): number {
    return this.num("held");
  }
  get kv(): number {
    return this.num("kv");
  }
  get waiting(): number {
    return this.num("waiting");
  }
  get ttft(): number {
    return this.num("ttft");
  }
  get tpot(): number {
    return this.num("tpot");
  }
  get total(): number {
    return this.num("totalMs");
  }
  get promptActual(): number {
    return this.num("promptActual");
  }
  get outputActual(): number {
    return this.num("outputActual");
  }
  get ending(): string {
    return this.store.endings.word(this.num("ending"));
  }
  get outcome(): "met" | "missed" | "running" | "none" {
    if (this.verdict !== "admit") return "none";
    const fate = this.num("fate");
    return fate === FATE.met ? "met" : fate === FATE.missed ? "missed" : "running";
  }
}

export class ListModel {
  private readonly store: Store;
  private readonly view: DecisionView;
  private filter: Filter | null = null;
  private matched: number[] = [];
  private head = 0;
  private seen = 0;
  private renumbered = 0;

  constructor(store: Store) {
    this.store = store;
    this.view = new DecisionView(store);
  }

  setFilter(filter: Filter): void {
    this.filter = filter;
    this.rescan();
  }

  /** Judges everything again, for filters on outcomes that came later. */
  rescan(): void {
    this.matched = [];
    this.head = 0;
    this.seen = this.store.decisions.first;
    this.update();
  }

  /** Takes in what is new and drops what has left the ring. Every question asks for it: the ring may have changed since. */
  update(): void {
    if (this.renumbered !== this.store.renumbered) {
      this.renumbered = this.store.renumbered;
      this.rescan();
      return;
    }
    const ring = this.store.decisions;
    if (this.seen === ring.total) return;
    for (let abs = Math.max(this.seen, ring.first); abs < ring.total; abs++) {
      this.view.abs = abs;
      if (!this.filter || this.filter.matches(this.view)) this.matched.push(abs);
    }
    this.seen = ring.total;
    while (this.head < this.matched.length && (this.matched[this.head] ?? 0) < ring.first) this.head++;
    if (this.head > 4096) {
      this.matched = this.matched.slice(this.head);
      this.head = 0;
    }
  }

  /** Number of matches older than absolute number end. */
  countBefore(end: number): number {
    this.update();
    let lo = this.head;
    let hi = this.matched.length;
    while (lo < hi) {
      const mid = (lo + hi) >>> 1;
      if ((this.matched[mid] ?? 0) < end) lo = mid + 1;
      else hi = mid;
    }
    return lo - this.head;
  }

  get count(): number {
    this.update();
    return this.matched.length - this.head;
  }

  /** Absolute number of match i among the first n, newest first; -1 outside. */
  newest(i: number, n = this.count): number {
    this.update();
    return i >= 0 && i < n ? (this.matched[this.head + n - 1 - i] ?? -1) : -1;
  }
}

/** Rows to draw for a scroll position: never more than limit. */
export function visibleRows(
  scrollTop: number,
  height: number,
  rowHeight: number,
  count: number,
  limit = 60,
): { from: number; to: number } {
  const overscan = 4;
  const from = Math.max(0, Math.floor(scrollTop / rowHeight) - overscan);
  const to = Math.min(count, from + Math.min(limit, Math.ceil(height / rowHeight) + 2 * overscan));
  return { from: Math.min(from, Math.max(0, count - 1)), to };
}
