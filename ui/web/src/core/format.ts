// Numbers and times as people read them. A value that is not known is an en dash, never a zero.

export const NONE = "–";
/** Narrow no-break space between number and unit. */
const NB = "\u202f";

const known = (n: number | null | undefined): n is number => typeof n === "number" && Number.isFinite(n);

/** 1234567 → "1.23M"; used for tokens and counts. */
export function si(n: number | null | undefined): string {
  if (!known(n)) return NONE;
  const a = Math.abs(n);
  if (a < 1000) return trim(n, a < 10 && !Number.isInteger(n) ? 1 : 0);
  const [div, unit] = a < 999_500 ? [1e3, "k"] : a < 999_500_000 ? [1e6, "M"] : [1e9, "G"];
  const v = n / div;
  return trim(v, Math.abs(v) < 10 ? 2 : Math.abs(v) < 100 ? 1 : 0) + unit;
}

/** IEC bytes: 1536 → "1.5 KiB". */
export function bytes(n: number | null | undefined): string {
  if (!known(n)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let v = n;
  let i = 0;
  while (Math.abs(v) >= 1024 && i < units.length - 1) {
    v /= 1024;
    i++;
  }
  return `${v.toFixed(i === 0 || v >= 100 ? 0 : 1)}${NB}${units[i]}`;
}

/** Fraction → percent: 0.9731 → "97.3%". */
export function percent(n: number | null | undefined, digits = 1): string {
  if (!known(n)) return NONE;
  return `${(n * 100).toFixed(digits)}%`;
}

/** Milliseconds → "412 ms", "1.24 s", "3 m 12 s", "2 h 05 m", "3 d 4 h". */
export function duration(ms: number | null | undefined): string {
  if (!known(ms)) return NONE;
  const a = Math.abs(ms);
  const sign = ms < 0 ? "−" : "";
  if (a < 1) return `${sign}${a === 0 ? "0" : a.toFixed(2)}${NB}ms`;
  if (a < 999.5) return `${sign}${a < 10 ? trim(a, 1) : a.toFixed(0)}${NB}ms`;
  if (a < 9_995) return `${sign}${(a / 1000).toFixed(2)}${NB}s`;
  if (a < 59_950) return `${sign}${(a / 1000).toFixed(1)}${NB}s`;
  const s = Math.round(a / 1000);
  if (s < 3600) return `${sign}${Math.floor(s / 60)}${NB}m ${pad(s % 60)}${NB}s`;
  if (s < 86_400) return `${sign}${Math.floor(s / 3600)}${NB}h ${pad(Math.floor((s % 3600) / 60))}${NB}m`;
  return `${sign}${Math.floor(s / 86_400)}${NB}d ${Math.floor((s % 86_400) / 3600)}${NB}h`;
}

/** Age with one fixed decimal below ten seconds, so that it does not jump about: "0.4 s". */
export function age(ms: number | null | undefined): string {
  if (!known(ms)) return NONE;
  if (ms < 9_950) return `${(Math.max(0, ms) / 1000).toFixed(1)}${NB}s`;
  if (ms < 59_500) return `${(ms / 1000).toFixed(0)}${NB}s`;
  return duration(ms);
}

export function rate(n: number | null | undefined): string {
  if (!known(n)) return NONE;
  return n < 100 ? n.toFixed(1) : si(n);
}

export function count(n: number | null | undefined): string {
  if (!known(n)) return NONE;
  return Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, NB);
}

/** A value in the words of its unit, as the API names units. */
export function withUnit(n: number | null | undefined, unit: string): string {
  if (!known(n)) return NONE;
  switch (unit) {
    case "fraction":
      return percent(n);
    case "ms":
      return duration(n);
    case "s":
      return duration(n * 1000);
    case "ns":
      return duration(n / 1e6);
    case "bytes":
      return bytes(n);
    case "1/s":
      return `${rate(n)}${NB}/s`;
    case "tokens/s":
      return `${si(n)}${NB}tok/s`;
    case "tokens":
      return `${si(n)}${NB}tok`;
    case "requests":
      return trim(n, Number.isInteger(n) ? 0 : 1);
    case "bool":
      return n ? "yes" : "no";
    case "":
      return trim(n, Number.isInteger(n) ? 0 : 3);
    default:
      return `${trim(n, Number.isInteger(n) ? 0 : 2)}${NB}${unit}`;
  }
}

/** Local wall clock, "14:03:07.482". */
export function clock(t: number, millis = true): string {
  if (!known(t)) return NONE;
  const d = new Date(t);
  const base = `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  return millis ? `${base}.${String(d.getMilliseconds()).padStart(3, "0")}` : base;
}

/** The same instant in UTC, for hover texts. */
export function utc(t: number): string {
  return known(t) ? new Date(t).toISOString().replace("T", " ").replace("Z", " UTC") : NONE;
}

/** Go writes an unset time as year 1; null for that and for nonsense. */
export function instant(text: string | null | undefined): number | null {
  if (!text) return null;
  const t = Date.parse(text);
  return Number.isFinite(t) && t > 0 ? t : null;
}

/** A phrase of the server as a sentence of the page: a capital in front, a full stop behind. */
export function asSentence(text: string): string {
  const t = text.trim();
  if (t === "") return "";
  return `${t[0]?.toUpperCase()}${t.slice(1)}${/[.!?…]$/.test(t) ? "" : "."}`;
}

export function shortRev(rev: string): string {
  return rev.slice(0, 8);
}

function pad(n: number): string {
  return String(n).padStart(2, "0");
}

function trim(n: number, digits: number): string {
  const text = n.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
