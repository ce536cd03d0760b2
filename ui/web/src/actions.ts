// What a person can do on the page; keys, buttons and the palette all call these.
import { batch } from "@preact/signals";
import { list, liveEnd, refreshStatus, restartStream, store, viewEnd } from "./app";
import { type Tab, THEMES, type Theme, WINDOWS } from "./core/url";
import { rest, setToken } from "./rest";
import * as view from "./view";

export function pause(at = liveEnd()): void {
  if (!Number.isFinite(at)) return;
  batch(() => {
    if (view.at.value === null) view.pausedTotal.value = store.decisions.total;
    view.at.value = Math.min(at, liveEnd());
  });
}

export function goLive(): void {
  batch(() => {
    view.at.value = null;
    view.cursor.value = null;
  });
}

export function togglePause(): void {
  if (view.at.value === null) pause();
  else goLive();
}

/** Moves the frozen instant by whole frames. */
export function stepFrames(frames: number): void {
  const rows = store.rows;
  if (rows.length === 0) return;
  const row = rows.rowAt(viewEnd());
  const abs = Math.min(rows.total - 1, Math.max(rows.first, (row < 0 ? rows.first : row) + frames));
  pause(rows.time(abs));
}

export function stepTime(ms: number): void {
  pause(Math.max(store.rows.firstTime, viewEnd() + ms));
}

/** Selects the next (1) or previous (-1) decision, or the next of one verdict, among those the filter shows. */
export function stepDecision(direction: 1 | -1, verdict = -1): void {
  const n = shownCount();
  let i = indexOfSelected(n);
  for (;;) {
    // The list is newest first, so "next" in time is one row up.
    i = i < 0 ? (direction < 0 ? 0 : -1) : i - direction;
    if (i < 0 || i >= n) return;
    const abs = list.newest(i, n);
    if (verdict >= 0 && store.decisions.get(abs, "verdict") !== verdict) continue;
    moveTo(abs, true);
    return;
  }
}

/** Moves the selection by rows of the list (j and k). */
export function stepRow(rows: number): void {
  const n = shownCount();
  if (n === 0) return;
  const i = indexOfSelected(n);
  const next = i < 0 ? 0 : Math.min(n - 1, Math.max(0, i + rows));
  moveTo(list.newest(next, n), false);
}

export function shownCount(): number {
  if (view.at.value === null) return list.count;
  return list.countBefore(store.decisions.lowerBound(view.at.value + 1));
}

export function indexOfSelected(n: number): number {
  const abs = store.decisions.find(view.row.value);
  if (abs < 0) return -1;
  const older = list.countBefore(abs);
  return list.newest(n - 1 - older, n) === abs ? n - 1 - older : -1;
}

/** Opens the "why" of a decision. */
export function open(id: string): void {
  if (id === "") return;
  batch(() => {
    view.row.value = id;
    view.selected.value = id;
  });
}

/** Puts the keyboard on a decision, takes an open drawer along and, when asked, freezes the view around it. */
function moveTo(abs: number, pin: boolean): void {
  const id = store.decisions.id(abs);
  if (id === "") return;
  batch(() => {
    view.row.value = id;
    if (view.selected.value !== "") view.selected.value = id;
    if (!pin) return;
    const t = store.decisions.time(abs);
    view.cursor.value = t;
    const end = viewEnd();
    if (view.at.value === null || t > end || t < end - view.windowMs.value) {
      pause(Math.min(liveEnd(), Math.max(t + view.windowMs.value * 0.25, t + 1)));
    }
  });
}

export function closeDrawer(): void {
  view.selected.value = "";
}

export function zoom(direction: 1 | -1): void {
  const i = WINDOWS.indexOf(view.windowMs.value);
  const next = WINDOWS[Math.min(WINDOWS.length - 1, Math.max(0, i + direction))];
  if (next) view.windowMs.value = next;
}

export function showTab(tab: Tab): void {
  view.tab.value = tab;
}

export function cycleTheme(): void {
  const i = THEMES.indexOf(view.theme.value);
  view.theme.value = THEMES[(i + 1) % THEMES.length] as Theme;
}

export function addFilter(term: string): void {
  const words = view.filterText.value.split(/\s+/).filter((w) => w !== "" && w !== term);
  view.filterText.value = [...words, term].join(" ");
}

export function giveToken(value: string): void {
  setToken(value.trim());
  view.askToken.value = "";
  restartStream();
  void refreshStatus();
}

export async function restartEngine(): Promise<string> {
  const reply = await rest<{ text: string }>("POST", poolPath("/api/v1/engine/restart"));
  void refreshStatus();
  return reply.ok ? "" : reply.problem.detail || reply.problem.title;
}

/** Adds the chosen pool to a path. */
export function poolPath(path: string): string {
  if (view.pool.value === "") return path;
  return `${path}${path.includes("?") ? "&" : "?"}pool=${encodeURIComponent(view.pool.value)}`;
}
