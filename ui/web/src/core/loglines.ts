// The engine's log as the page keeps it: bounded, with a level read from each line where it names one.
import type { LogLine } from "../api";

export const LOG_KEEP = 2000;
export const LOG_SHOW = 500;
export type Level = "error" | "warn" | "info" | "debug" | "";
export const LEVELS = ["all", "info", "warn", "error"] as const;
export type LevelChoice = (typeof LEVELS)[number];

const WORDS: [RegExp, Level][] = [
  [/\b(ERROR|CRITICAL|FATAL)\b|Traceback \(most recent|^\w*(Error|Exception): /, "error"],
  [/\bWARN(ING)?\b/, "warn"],
  [/\bINFO\b/, "info"],
  [/\bDEBUG\b/, "debug"],
];

export function levelOf(text: string): Level {
  return WORDS.find(([pattern]) => pattern.test(text))?.[1] ?? "";
}

const RANK: Record<Level, number> = { debug: 0, "": 1, info: 1, warn: 2, error: 3 };
const LEAST: Record<LevelChoice, number> = { all: 0, info: 1, warn: 2, error: 3 };

export interface Shown extends LogLine {
  level: Level;
}

/** Adds new lines and forgets the oldest ones. */
export function keepLines(kept: Shown[], fresh: LogLine[]): Shown[] {
  const last = kept.at(-1)?.seq ?? 0;
  const added = fresh.filter((l) => l.seq > last).map((l) => ({ ...l, level: levelOf(l.text) }));
  return added.length === 0 ? kept : [...kept, ...added].slice(-LOG_KEEP);
}

export function chooseLines(kept: Shown[], words: string, level: LevelChoice): Shown[] {
  const needle = words.toLowerCase();
  const out = kept.filter(
    (l) => RANK[l.level] >= LEAST[level] && (needle === "" || l.text.toLowerCase().includes(needle)),
  );
  return out.slice(-LOG_SHOW);
}
