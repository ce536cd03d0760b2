// Wires the page: one store, one stream, one animation frame that draws everything that changed.
import { batch } from "@preact/signals";
import type { DecisionItem, Status } from "./api";
import { ListModel } from "./core/list";
import { Store } from "./core/store";
import { type Socket, Stream } from "./core/stream";
import { rest, token } from "./rest";
import * as view from "./view";

export const store = new Store();
export const list = new ListModel(store);

/** Client clock at the last message, for ages that do not trust the server's clock. */
export let heardAt = 0;

const stream = new Stream({
  open: (path, protocols) => {
    const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${path}`, protocols);
    return socket as unknown as Socket;
  },
  fetch: async (path) => fetch(path, { headers: authorised(), cache: "no-store" }),
  now: () => performance.now(),
  later: (ms, run) => {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  random: Math.random,
  token,
  pool: () => view.pool.value,
  lastSeq: () => store.lastSeq,
  onMessage: (message) => {
    heardAt = performance.now();
    if (store.apply(message) === "reload") reloadPage();
    if (message.kind === "snap" && store.knownFrom > 0) void backfill();
    if (message.kind === "hello" || message.kind === "snap" || message.kind === "event") void refreshStatus();
    markDirty();
  },
  onLink: (link) => {
    view.link.value = link;
    if (link.state === "unauthorised") view.askToken.value = "read";
    markDirty("all");
  },
});

function authorised(): Record<string, string> {
  return token() === "" ? {} : { Authorization: `Bearer ${token()}` };
}

/** A newer server speaks another stream: its own page does too. Once a minute at most, so that a mismatch cannot spin. */
function reloadPage(): void {
  const last = Number(sessionStorage.getItem("admitd.reloaded") ?? 0);
  if (Date.now() - last < 60_000) return;
  sessionStorage.setItem("admitd.reloaded", String(Date.now()));
  location.reload();
}

/** Most decisions that one answer of the API lists, and how many such answers are fetched. */
const PAGE = 1000;
const PAGES = 4;
const KEEP_MS = 900_000;
let backfilled = false;

interface Page {
  items: DecisionItem[] | null;
  oldest: number;
}

/** Fetches, once, the decisions of the last 15 minutes before those that the snap carried. */
async function backfill(): Promise<void> {
  if (backfilled) return;
  backfilled = true;
  let before = 0;
  for (let page = 0; page < PAGES; page++) {
    const q = new URLSearchParams({ limit: String(PAGE) });
    // Entries are numbered without holes, so a stretch of PAGE numbers never holds more than PAGE decisions.
    if (before > 0) q.set("after", String(Math.max(0, before - 1 - PAGE)));
    if (view.pool.value !== "") q.set("pool", view.pool.value);
    const reply = await rest<Page>("GET", `/api/v1/decisions?${q}`, { quiet: true });
    if (!reply.ok) return;
    const items = (reply.body.items ?? []).filter((d) => before === 0 || d.seq < before);
    const from = before > 0 ? Math.max(0, before - 1 - PAGE) : 0;
    const first = items.at(-1)?.seq ?? 0;
    const whole = before > 0 ? from < reply.body.oldest : items.length < PAGE;
    store.backfill(items, !whole);
    markDirty();
    before = before > 0 ? from + 1 : first;
    if (whole || store.knownFrom < Date.now() - KEEP_MS) return;
  }
}

let statusBusy = false;
export async function refreshStatus(): Promise<void> {
  if (statusBusy) return;
  statusBusy = true;
  try {
    const reply = await rest<Status>("GET", "/api/v1/status", { quiet: true });
    if (reply.ok) {
      store.setStatus(reply.body);
      markDirty();
    }
  } finally {
    statusBusy = false;
  }
}

/** Shortest times between two redraws, in ms; all three wait longer where less motion is asked for. */
const CHARTS_MS = 100;
const LIST_MS = 200;
const WORDS_MS = 500;
/** Plots are about this wide; a chart that has moved by less than one pixel is not drawn again. */
const PLOT_PX = 750;

let dirty = false;
let scheduled: "no" | "wait" | "frame" = "no";
let waiting: ReturnType<typeof setTimeout> | undefined;
let lastDraw = 0;
const last = { charts: 0, list: 0, words: 0 };

/** Says that something to draw has changed; the parts named are drawn at the next frame instead of at their next tick. */
export function markDirty(now?: "charts" | "all"): void {
  dirty = true;
  if (now) last.charts = 0;
  if (now === "all") last.list = last.words = 0;
  if (scheduled === "frame" || (scheduled === "wait" && !now)) return;
  clearTimeout(waiting);
  const interval = view.reducedMotion.value ? 1000 : CHARTS_MS;
  const wait = now ? 0 : lastDraw + interval - performance.now();
  scheduled = wait <= 8 ? "frame" : "wait";
  if (scheduled === "frame") requestAnimationFrame(draw);
  else waiting = setTimeout(() => requestAnimationFrame(draw), wait - 8);
}

/** True, and noted, when a part that is drawn at most every ms is due. */
function due(part: keyof typeof last, ms: number, now: number): boolean {
  if (now - last[part] < ms - 10) return false;
  last[part] = now;
  return true;
}

function draw(): void {
  scheduled = "no";
  if (!dirty) return;
  dirty = false;
  const now = performance.now();
  lastDraw = now;
  const pixel = view.at.value === null ? view.windowMs.value / PLOT_PX : CHARTS_MS;
  batch(() => {
    list.update();
    if (due("charts", Math.max(CHARTS_MS, Math.min(WORDS_MS, pixel)), now)) view.chartTick.value++;
    if (due("list", LIST_MS, now)) view.listTick.value++;
    if (due("words", WORDS_MS, now)) view.slowTick.value++;
  });
}

/** The newest instant that the view can show. */
export function liveEnd(): number {
  return store.lastT;
}

/** Right edge of the view. */
export function viewEnd(): number {
  return view.at.value ?? liveEnd();
}

export function restartStream(): void {
  stream.restart();
}

export function startApp(): void {
  stream.start();
  addEventListener("online", () => stream.nudge());
  document.addEventListener("visibilitychange", () => {
    stream.setRate(document.hidden ? 1 : 10);
    if (!document.hidden) stream.nudge();
  });
  setInterval(() => {
    // Ages go on while nothing is heard.
    markDirty();
  }, 1000);
  setInterval(() => {
    if (!document.hidden && view.link.value.state !== "reconnecting") void refreshStatus();
  }, 2000);
  view.cursor.subscribe(() => markDirty("charts"));
  for (const s of [view.filterText, view.windowMs, view.at, view.selected, view.row, view.theme, view.table]) {
    s.subscribe(() => markDirty("all"));
  }
}
