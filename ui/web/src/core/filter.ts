// The decision list's filter: `decision:reject reason:kv tenant:acme session:ab12 code:529 est>4000 !retry`.
// Terms are joined by "and", commas inside one term by "or", "!" turns a term round.

/** One decision as the filter sees it. Numbers that are not known are NaN and match no comparison. */
export interface Filterable {
  id: string;
  verdict: string;
  reason: string;
  label: string;
  tenant: string;
  cls: string;
  session: string;
  status: number;
  attempt: number;
  prompt: number;
  output: number;
  reserved: number;
  retryAfter: number;
  held: number;
  kv: number;
  waiting: number;
  ttft: number;
  tpot: number;
  total: number;
  ending: string;
  outcome: "met" | "missed" | "running" | "none";
}

export interface Filter {
  matches(d: Filterable): boolean;
  /** What could not be understood, in words; those terms are left out. */
  problems: string[];
  /** True when an outcome that comes later can change what matches. */
  usesOutcome: boolean;
  empty: boolean;
}

type Test = (d: Filterable) => boolean;

const WORDS: Record<string, (d: Filterable) => string> = {
  decision: (d) => d.verdict,
  reason: (d) => d.reason,
  tenant: (d) => d.tenant,
  class: (d) => d.cls,
  session: (d) => d.session,
  id: (d) => d.id,
  outcome: (d) => d.outcome,
  ending: (d) => d.ending,
  code: (d) => (Number.isNaN(d.status) ? "" : String(d.status)),
};

/** Reads a number of a decision; durations are in ms, kv is a fraction. */
const NUMBERS: Record<string, (d: Filterable) => number> = {
  est: (d) => d.prompt,
  out: (d) => d.output,
  reserved: (d) => d.reserved,
  attempt: (d) => d.attempt,
  kv: (d) => d.kv,
  waiting: (d) => d.waiting,
  retry_after: (d) => d.retryAfter,
  held: (d) => d.held,
  ttft: (d) => d.ttft,
  tpot: (d) => d.tpot,
  total: (d) => d.total,
  code: (d) => d.status,
};

const FLAGS: Record<string, Test> = {
  retry: (d) => d.attempt > 0,
  held: (d) => d.held > 0,
  met: (d) => d.outcome === "met",
  missed: (d) => d.outcome === "missed",
  running: (d) => d.outcome === "running",
  admit: (d) => d.verdict === "admit",
  defer: (d) => d.verdict === "defer",
  reject: (d) => d.verdict === "reject",
};

const OUTCOME_KEYS = new Set(["outcome", "ending", "ttft", "tpot", "total", "met", "missed", "running"]);

/** Keys and flags, for the help text. */
export const FILTER_WORDS = {
  words: Object.keys(WORDS),
  numbers: Object.keys(NUMBERS),
  flags: Object.keys(FLAGS),
};

export function parseFilter(text: string): Filter {
  const tests: Test[] = [];
  const problems: string[] = [];
  let usesOutcome = false;
  for (const raw of split(text)) {
    const not = raw.startsWith("!");
    const term = not ? raw.slice(1) : raw;
    if (term === "") continue;
    const parsed = parseTerm(term);
    if (typeof parsed === "string") {
      problems.push(parsed);
      continue;
    }
    usesOutcome ||= OUTCOME_KEYS.has(parsed.key);
    tests.push(not ? (d) => !parsed.test(d) : parsed.test);
  }
  return {
    matches: (d) => tests.every((test) => test(d)),
    problems,
    usesOutcome,
    empty: tests.length === 0,
  };
}

function split(text: string): string[] {
  return text.match(/(?:[^\s"]+|"[^"]*"?)+/g)?.map((t) => t.replaceAll('"', "")) ?? [];
}

function parseTerm(term: string): { key: string; test: Test } | string {
  const compare = /^([a-z_]+)(>=|<=|>|<|=)(.+)$/.exec(term);
  if (compare) return comparison(compare[1] ?? "", compare[2] ?? "", compare[3] ?? "");
  const colon = term.indexOf(":");
  if (colon > 0) return wordTerm(term.slice(0, colon), term.slice(colon + 1));
  const flag = FLAGS[term];
  if (flag) return { key: term, test: flag };
  return { key: "text", test: textTest(term) };
}

function comparison(key: string, op: string, value: string): { key: string; test: Test } | string {
  const read = NUMBERS[key];
  if (!read) return `${key}: no such number; there are ${Object.keys(NUMBERS).join(", ")}`;
  const limit = parseNumber(value);
  if (Number.isNaN(limit)) return `${key}${op}${value}: “${value}” is not a number`;
  const tests: Record<string, (n: number) => boolean> = {
    ">": (n) => n > limit,
    "<": (n) => n < limit,
    ">=": (n) => n >= limit,
    "<=": (n) => n <= limit,
    "=": (n) => n === limit,
  };
  const test = tests[op];
  return test ? { key, test: (d) => test(read(d)) } : `${op}: no such comparison`;
}

/** Numbers may carry k, M, %, ms or s: "4k", "90%", "1.5s". */
export function parseNumber(text: string): number {
  const m = /^(-?\d+(?:\.\d+)?)(k|m|%|ms|s)?$/i.exec(text);
  if (!m) return Number.NaN;
  const scale: Record<string, number> = { k: 1e3, m: 1e6, "%": 0.01, ms: 1, s: 1e3 };
  return Number(m[1]) * (scale[(m[2] ?? "").toLowerCase()] ?? 1);
}

function wordTerm(key: string, value: string): { key: string; test: Test } | string {
  const read = WORDS[key];
  if (!read) return `${key}: no such field; there are ${Object.keys(WORDS).join(", ")}`;
  const choices = value
    .toLowerCase()
    .split(",")
    .filter((c) => c !== "");
  if (choices.length === 0) return `${key}: needs a value`;
  if (key === "code") return { key, test: (d) => choices.some((c) => codeMatches(read(d), c)) };
  return {
    key,
    test: (d) => {
      const word = read(d).toLowerCase();
      return choices.some((c) => (c === "none" ? word === "" || word === "none" : word.startsWith(c)));
    },
  };
}

function codeMatches(code: string, pattern: string): boolean {
  return pattern.endsWith("xx") ? code.length === 3 && code[0] === pattern[0] : code === pattern;
}

function textTest(text: string): Test {
  const needle = text.toLowerCase();
  return (d) =>
    [d.id, d.tenant, d.session, d.reason, d.label, d.cls].some((word) => word.toLowerCase().includes(needle));
}
