// What the person has chosen to look at, as signals; the URL mirrors it.
import { batch, computed, effect, signal } from "@preact/signals";
import type { Link } from "./core/stream";
import { readUrl, type Tab, type Theme, writeUrl } from "./core/url";

const start = readUrl(location.search);

export const tab = signal<Tab>(start.tab);
export const windowMs = signal<number>(start.windowMs);
export const filterText = signal(start.filter);
/** Decision whose "why" is open; "" when none is. */
export const selected = signal(start.selected);
/** Decision that the keyboard stands on, open or not. */
export const row = signal(start.selected);
/** The instant at which the view is frozen; null when it follows the newest frame. */
export const at = signal<number | null>(start.at);
export const theme = signal<Theme>(start.theme === "system" ? storedTheme() : start.theme);
export const table = signal(start.table);
export const pool = signal(start.pool);

/** Instant under the pointer or the keyboard cursor. */
export const cursor = signal<number | null>(null);
export const help = signal(false);
export const palette = signal(false);
export const link = signal<Link>({ state: "connecting" });
/** Why a token is asked for; "" while it is not. */
export const askToken = signal("");
export const paused = computed(() => at.value !== null);
/** Decisions that had come when the view was frozen, to count the ones since. */
export const pausedTotal = signal(0);
export const singleKeys = signal(read("admitd.keys") !== "off");
export const reducedMotion = signal(matchMedia("(prefers-reduced-motion: reduce)").matches);
matchMedia("(prefers-reduced-motion: reduce)").addEventListener("change", (e) => {
  reducedMotion.value = e.matches;
});

/**
 * Ticks of the one animation frame: charts at up to 10 Hz, the list at 5 Hz, words at 2 Hz. The store is no signal,
 * and a component that reads any signal is drawn again for its signals and props alone: whoever reads the store
 * reads a tick too.
 */
export const chartTick = signal(0);
export const listTick = signal(0);
export const slowTick = signal(0);

function storedTheme(): Theme {
  const t = read("admitd.theme");
  return t === "light" || t === "dark" ? t : "system";
}

function read(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Private windows may refuse; the choice then lasts as long as the page.
  }
}

export function keepUrl(): void {
  effect(() => {
    const query = writeUrl({
      tab: tab.value,
      windowMs: windowMs.value,
      filter: filterText.value,
      selected: selected.value,
      at: at.value,
      theme: theme.value,
      table: table.value,
      pool: pool.value,
    });
    if (query !== location.search) history.replaceState(null, "", `${location.pathname}${query}`);
  });
  addEventListener("popstate", () => {
    const s = readUrl(location.search);
    batch(() => {
      tab.value = s.tab;
      windowMs.value = s.windowMs;
      filterText.value = s.filter;
      selected.value = s.selected;
      at.value = s.at;
      table.value = s.table;
    });
  });
}

export function keepTheme(): void {
  effect(() => {
    const root = document.documentElement;
    if (theme.value === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme.value);
    remember("admitd.theme", theme.value);
  });
  effect(() => remember("admitd.keys", singleKeys.value ? "on" : "off"));
}
