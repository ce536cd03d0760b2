// What is on screen, as a link: tab, window, filter, selected decision, instant, theme, table.

export const TABS = ["live", "policy", "engine"] as const;
export type Tab = (typeof TABS)[number];
export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
/** Window lengths in ms: 30 s, 1, 2, 5 and 15 min. */
export const WINDOWS: readonly number[] = [30_000, 60_000, 120_000, 300_000, 900_000];
export const DEFAULT_WINDOW = 120_000;

export interface UrlState {
  tab: Tab;
  windowMs: number;
  filter: string;
  selected: string;
  /** The instant at which the view is frozen, ms since the epoch; null when live. */
  at: number | null;
  theme: Theme;
  table: boolean;
  pool: string;
}

export function windowName(ms: number): string {
  return ms < 60_000 ? `${ms / 1000}s` : `${ms / 60_000}m`;
}

export function readUrl(search: string): UrlState {
  const q = new URLSearchParams(search);
  const at = Number(q.get("at"));
  return {
    tab: oneOf(TABS, q.get("tab")) ?? "live",
    windowMs: WINDOWS.find((w) => windowName(w) === q.get("w")) ?? DEFAULT_WINDOW,
    filter: q.get("q") ?? "",
    selected: q.get("id") ?? "",
    at: q.has("at") && Number.isFinite(at) && at > 0 ? at : null,
    theme: oneOf(THEMES, q.get("theme")) ?? "system",
    table: q.get("table") === "1",
    pool: q.get("pool") ?? "",
  };
}

/** The query string for a state, "" when everything is as by default. */
export function writeUrl(s: UrlState): string {
  const q = new URLSearchParams();
  if (s.tab !== "live") q.set("tab", s.tab);
  if (s.windowMs !== DEFAULT_WINDOW) q.set("w", windowName(s.windowMs));
  if (s.filter !== "") q.set("q", s.filter);
  if (s.selected !== "") q.set("id", s.selected);
  if (s.at !== null) q.set("at", String(Math.round(s.at)));
  if (s.theme !== "system") q.set("theme", s.theme);
  if (s.table) q.set("table", "1");
  if (s.pool !== "") q.set("pool", s.pool);
  const text = q.toString();
  return text === "" ? "" : `?${text}`;
}

function oneOf<T extends string>(all: readonly T[], value: string | null): T | undefined {
  return all.find((v) => v === value);
}
