// A small made-up pool: agents in waves against an engine with few slots. Deterministic by its seed; it stands in
// for admitd in browser tests and in `npm run dev`, and says so by its names.
import type { Decision, DecisionItem, Gauge, Outcome, ReasonEntry, Verdict } from "../../src/api";
import { reasons } from "./reasons";

export const GAUGES: Gauge[] = [
  ["kv_used", "fraction"],
  ["kv_reserved", "fraction"],
  ["running", "requests"],
  ["waiting", "requests"],
  ["in_flight", "requests"],
  ["held", "requests"],
  ["preemption_rate", "1/s"],
  ["prefill_tokens_rate", "tokens/s"],
  ["decode_tokens_rate", "tokens/s"],
  ["prefix_hit_rate", "fraction"],
  ["ttft_p50_ms", "ms"],
  ["ttft_p95_ms", "ms"],
  ["tpot_p50_ms", "ms"],
  ["tpot_p95_ms", "ms"],
  ["gpu_memory_used_bytes", "bytes"],
  ["gpu_memory_total_bytes", "bytes"],
  ["gpu_memory_engine_bytes", "bytes"],
  ["gpu_utilization", "fraction"],
  ["scrape_age_ms", "ms"],
  ["gpu_age_ms", "ms"],
  ["goodput_1m", "fraction"],
  ["arrivals_rate", "1/s"],
  ["reserved_tokens", "tokens"],
  ["max_waiting", "requests"],
  ["max_kv_used", "fraction"],
  ["max_in_flight", "requests"],
].map(([name = "", unit = ""]) => ({ name, unit }));

const CAPACITY_TOKENS = 262_144;
const GIB = 1024 ** 3;

/** Mulberry32: a well-known small generator, good enough for made-up load. */
export function random(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = a;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export interface WorldOptions {
  seed?: number;
  gpu?: boolean;
  /** Arrivals a second in a calm minute. */
  rate?: number;
}

interface Running {
  item: DecisionItem;
  firstAt: number;
  endAt: number;
  tokens: number;
  ttft: number;
}

export interface Step {
  t: number;
  gauges: (number | null)[];
  decisions: DecisionItem[];
  outcomes: Outcome[];
  counts: [number, number, number];
}

export class World {
  now: number;
  maxKV = 0.9;
  maxWaiting: number | null = 4;
  slots = 48;
  items: DecisionItem[] = [];
  gpu: boolean;
  rate: number;
  /** A fixed scrape age in ms, for stale signals. */
  scrapeAge: number | null = null;
  /** Multiplies the arrivals for a burst. */
  burst = 1;
  private readonly rnd: () => number;
  private running: Running[] = [];
  private waiting: Running[] = [];
  private ended: { t: number; o: Outcome }[] = [];
  private arrivals: number[] = [];
  private refusals: number[] = [];
  private serial = 0;
  private sessions: { id: string; tenant: string; attempt: number; backAt: number }[] = [];

  constructor(now: number, o: WorldOptions = {}) {
    this.now = now;
    this.rnd = random(o.seed ?? 7);
    this.gpu = o.gpu ?? true;
    this.rate = o.rate ?? 7;
  }

  /** Goes on by ms and tells what happened. */
  step(ms: number): Step {
    this.now += ms;
    const outcomes = this.endings();
    const decisions = this.arrive(ms);
    const counts: [number, number, number] = [0, 0, 0];
    for (const d of decisions) {
      const i = ["admit", "defer", "reject"].indexOf(d.decision.verdict);
      if (i >= 0) counts[i as 0 | 1 | 2]++;
    }
    return { t: this.now, gauges: this.gauges(), decisions, outcomes, counts };
  }

  private wave(): number {
    const s = this.now / 1000;
    const slow = 0.75 + 0.4 * Math.sin(s / 37);
    const storm = s % 71 < 9 ? 4 : 1;
    return this.rate * slow * storm * this.burst;
  }

  private arrive(ms: number): DecisionItem[] {
    const out: DecisionItem[] = [];
    const expected = (this.wave() * ms) / 1000;
    let n = Math.floor(expected) + (this.rnd() < expected % 1 ? 1 : 0);
    for (const s of this.sessions.filter((x) => x.backAt > 0 && x.backAt <= this.now)) {
      s.backAt = 0;
      out.push(this.decide(s, ms));
      n--;
    }
    for (; n > 0; n--) out.push(this.decide(this.session(), ms));
    out.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
    for (const d of out) {
      this.arrivals.push(this.now);
      if (d.decision.verdict !== "admit") this.refusals.push(this.now);
      this.items.push(d);
    }
    if (this.items.length > 9000) this.items.splice(0, this.items.length - 9000);
    return out;
  }

  private session() {
    if (this.sessions.length > 14 && this.rnd() < 0.8) {
      const s = this.sessions[Math.floor(this.rnd() * this.sessions.length)];
      if (s && s.backAt === 0) return { ...s, attempt: 0 };
    }
    const id = Math.floor(this.rnd() * 0xffffffff)
      .toString(16)
      .padStart(8, "0");
    const tenants = ["acme", "acme", "northwind", "globex", "initech"];
    const s = { id, tenant: tenants[Math.floor(this.rnd() * tenants.length)] ?? "acme", attempt: 0, backAt: 0 };
    this.sessions.push(s);
    if (this.sessions.length > 60) this.sessions.shift();
    return s;
  }

  private reserved(): number {
    return [...this.running, ...this.waiting].reduce((sum, r) => sum + r.item.decision.reserved_tokens, 0);
  }

  private kv(): number {
    const tokens = this.running.reduce((sum, r) => {
      const d = r.item.decision;
      const done = Math.min(1, Math.max(0, (this.now - r.firstAt) / Math.max(1, r.endAt - r.firstAt)));
      return sum + d.prompt_tokens_estimated + done * r.tokens;
    }, 0);
    return tokens / CAPACITY_TOKENS;
  }

  private decide(s: { id: string; tenant: string; attempt: number }, ms: number): DecisionItem {
    const prompt = Math.round(600 + 9000 * this.rnd() ** 2.4 + (this.rnd() < 0.06 ? 9000 : 0));
    const output = Math.round(180 + 900 * this.rnd() ** 2);
    const kv = this.kv();
    const reserved = prompt + output;
    const promised = (this.reserved() + reserved) / CAPACITY_TOKENS;
    const waiting = this.waiting.length;
    const [verdict, reason] = this.judge(promised, waiting, prompt);
    const item = this.record(s, { prompt, output, reserved, kv, promised, waiting, verdict, reason, ms });
    if (verdict === "admit") this.start(item);
    else if (reason !== "tenant_concurrency") this.comeBack(s, item);
    return item;
  }

  private judge(promised: number, waiting: number, prompt: number): [Verdict, string] {
    if (prompt > 17_000) return ["reject", "too_large"];
    if (this.rnd() < 0.012) return ["reject", "tenant_concurrency"];
    if (promised > this.maxKV)
      return promised > 1.12 && this.rnd() < 0.5 ? ["reject", "saturated"] : ["defer", "kv_pressure"];
    if (this.maxWaiting !== null && waiting >= this.maxWaiting) return ["defer", "queue_depth"];
    return ["admit", "ok"];
  }

  private start(item: DecisionItem): void {
    const d = item.decision;
    const queued = this.running.length >= this.slots;
    const load = this.running.length / this.slots;
    const ttft =
      70 +
      d.prompt_tokens_estimated / 42 +
      (queued ? 300 : 70) * this.rnd() * (1 + 2 * load) +
      (this.rnd() < 0.03 ? 900 : 0);
    const tokens = Math.round(d.output_tokens_estimated * (0.5 + this.rnd()));
    const tpot = 14 + 16 * load + 6 * this.rnd();
    const run = { item, firstAt: this.now + ttft, endAt: this.now + ttft + tokens * tpot * 0.35, tokens, ttft };
    (queued ? this.waiting : this.running).push(run);
  }

  private comeBack(s: { id: string; tenant: string; attempt: number }, item: DecisionItem): void {
    const known = this.sessions.find((x) => x.id === s.id);
    if (!known || s.attempt >= 3) return;
    known.attempt = s.attempt + 1;
    known.backAt = this.now + (item.decision.retry_after_ms ?? 2000);
  }

  private endings(): Outcome[] {
    const out: Outcome[] = [];
    for (const r of this.running.filter((x) => x.endAt <= this.now)) {
      const d = r.item.decision;
      const fate = this.rnd();
      const ending = fate < 0.02 ? "caller_gone" : fate < 0.025 ? "engine_error" : "whole";
      const o: Outcome = {
        id: d.id,
        ending,
        status: ending === "engine_error" ? 500 : 200,
        ttft_ms: r.ttft,
        tpot_ms: (r.endAt - r.firstAt) / Math.max(1, r.tokens) / 0.35,
        total_ms: r.endAt - Date.parse(r.item.at),
        prompt_tokens: Math.round(d.prompt_tokens_estimated * (0.9 + 0.15 * this.rnd())),
        cached_tokens: Math.round(d.prompt_tokens_estimated * 0.4),
        completion_tokens: r.tokens,
        slo_met: ending === "whole" && r.ttft < 1000,
        finish_reason: ending === "whole" ? "stop" : "",
      };
      r.item.outcome = o;
      out.push(o);
      this.ended.push({ t: this.now, o });
    }
    this.running = this.running.filter((x) => x.endAt > this.now);
    while (this.running.length < this.slots && this.waiting.length > 0) {
      const next = this.waiting.shift();
      if (next) this.running.push(next);
    }
    this.ended = this.ended.filter((e) => e.t > this.now - 300_000);
    this.arrivals = this.arrivals.filter((t) => t > this.now - 60_000);
    this.refusals = this.refusals.filter((t) => t > this.now - 60_000);
    return out;
  }

  gauges(): (number | null)[] {
    const recent = this.ended.filter((e) => e.t > this.now - 10_000).map((e) => e.o);
    const pick = (q: number, read: (o: Outcome) => number | null) => {
      const all = recent
        .map(read)
        .filter((v): v is number => v !== null)
        .sort((a, b) => a - b);
      return all.length === 0 ? null : (all[Math.min(all.length - 1, Math.floor(all.length * q))] ?? null);
    };
    const minute = this.ended.filter((e) => e.t > this.now - 60_000);
    const met = minute.filter((e) => e.o.slo_met).length;
    const refused = this.refusals.filter((t) => t > this.now - 60_000).length;
    const gpu = this.gpu
      ? [
          71.4 * GIB + this.kv() * 0.4 * GIB,
          79.6 * GIB,
          68.9 * GIB,
          Math.min(1, 0.2 + this.running.length / this.slots),
        ]
      : [null, null, null, null];
    const wobble = this.scrapeAge ?? (this.now / 7) % 400;
    return [
      this.kv(),
      this.reserved() / CAPACITY_TOKENS,
      this.running.length,
      this.waiting.length,
      this.running.length + this.waiting.length,
      0,
      0,
      this.running.length * 900,
      this.running.length * 70,
      0.41,
      pick(0.5, (o) => o.ttft_ms),
      pick(0.95, (o) => o.ttft_ms),
      pick(0.5, (o) => o.tpot_ms),
      pick(0.95, (o) => o.tpot_ms),
      ...gpu,
      wobble,
      this.gpu ? wobble * 2 : null,
      minute.length + refused === 0 ? null : met / (minute.length + refused * 0.3),
      this.arrivals.filter((t) => t > this.now - 10_000).length / 10,
      this.reserved(),
      this.maxWaiting,
      this.maxKV,
      null,
    ];
  }

  counts(seconds: number): {
    arrivals: number;
    admitted: number;
    deferred: number;
    rejected: number;
    ended: number;
    met: number;
  } {
    const since = this.now - seconds * 1000;
    const recent = this.items.filter((d) => Date.parse(d.at) > since);
    const of = (v: string) => recent.filter((d) => d.decision.verdict === v).length;
    const ended = this.ended.filter((e) => e.t > since);
    return {
      arrivals: recent.length,
      admitted: of("admit"),
      deferred: of("defer"),
      rejected: of("reject"),
      ended: ended.length,
      met: ended.filter((e) => e.o.slo_met).length,
    };
  }

  private record(
    s: { id: string; tenant: string; attempt: number },
    x: {
      prompt: number;
      output: number;
      reserved: number;
      kv: number;
      promised: number;
      waiting: number;
      verdict: Verdict;
      reason: string;
      ms: number;
    },
  ): DecisionItem {
    const entry = reasonEntry(x.reason);
    const at = this.now - Math.floor(this.rnd() * x.ms);
    this.serial++;
    const id = `01k${at.toString(36)}${this.serial.toString(36).padStart(4, "0")}`;
    const retry = entry.retry === "after" ? 1000 + Math.floor(this.rnd() * 5000) : 0;
    const decision: Decision = {
      id,
      pool: "Qwen2.5-0.5B",
      model: "Qwen2.5-0.5B",
      path: this.serial % 4 === 0 ? "/v1/messages" : "/v1/chat/completions",
      stream: true,
      tenant: s.tenant,
      class: s.tenant === "acme" ? "interactive" : "default",
      session: s.id,
      session_source: "x-admitd-session",
      attempt: s.attempt,
      prompt_tokens_estimated: x.prompt,
      output_tokens_estimated: x.output,
      output_cap: this.serial % 3 === 0 ? 4096 : null,
      reserved_tokens: x.reserved,
      sequences: 1,
      body_bytes: x.prompt * 4,
      verdict: x.verdict,
      reason: x.reason,
      status: x.verdict === "admit" ? 0 : entry.status,
      retry_after_ms: retry,
      ticket: x.verdict === "defer",
      decide_us: 20 + Math.floor(this.rnd() * 40),
      policy: "dual-gate",
      policy_rev: "a1b2c3d4e5f6",
      snapshot_seq: 4100 + this.serial,
      ledger: {
        in_flight: this.running.length + this.waiting.length,
        unseen: 2,
        held: 0,
        reserved_tokens: this.reserved(),
        slots: this.slots,
      },
      ...this.explain(x),
    };
    return { seq: this.serial, at: new Date(at).toISOString(), decision, outcome: null, reason_entry: entry };
  }

  private explain(x: {
    kv: number;
    promised: number;
    waiting: number;
    verdict: Verdict;
    reason: string;
  }): Partial<Decision> {
    const limit = this.maxWaiting ?? 99;
    const input = (name: string, value: number, unit: string) => ({ name, value, unit, state: "live", age_ms: 312 });
    const signals = [
      { ...input("running", this.running.length, "requests"), source: "vllm:num_requests_running" },
      { ...input("waiting", x.waiting, "requests"), source: "vllm:num_requests_waiting" },
      { ...input("kv_used", x.kv, "fraction"), source: "vllm:kv_cache_usage_perc" },
      { name: "kv_capacity_tokens", value: CAPACITY_TOKENS, unit: "tokens", state: "live", age_ms: 312 },
      { name: "awake", value: null, unit: "bool", state: "missing", age_ms: 0, why: "not exported" },
    ];
    if (x.reason === "too_large" || x.reason === "tenant_concurrency") return { signals };
    const kvFails = x.reason === "kv_pressure" || x.reason === "saturated";
    const pct = (v: number) => `${(v * 100).toFixed(1)}%`;
    return {
      signals,
      message: kvFails
        ? `The KV cache would reach ${pct(x.promised)} with this request; the limit is ${pct(this.maxKV)}.`
        : x.reason === "queue_depth"
          ? `${x.waiting} requests wait inside the engine; the limit is ${limit}.`
          : "",
      counterfactual: kvFails
        ? `It would have been admitted with ${Math.ceil((x.promised - this.maxKV) * CAPACITY_TOKENS)} fewer tokens, or after about 1.8 s at the present rate of endings.`
        : x.reason === "queue_depth"
          ? `It would have been admitted with ${x.waiting - limit + 1} fewer requests waiting.`
          : "",
      trace: [
        {
          rule: "kv_used",
          text: `kv_used ${pct(x.kv)} + this request = ${pct(x.promised)} ${kvFails ? ">" : "≤"} limit ${pct(this.maxKV)}`,
          inputs: [
            input("kv_used", x.kv, "fraction"),
            { ...input("promised", x.promised, "fraction"), state: "ledger", age_ms: 0 },
          ],
          limit: this.maxKV,
          result: kvFails ? "fail" : "pass",
          margin: this.maxKV - x.promised,
        },
        {
          rule: "waiting",
          text: kvFails
            ? "waiting was not looked at"
            : `waiting ${x.waiting} ${x.waiting >= limit ? "≥" : "<"} limit ${limit}`,
          inputs: kvFails ? [] : [input("waiting", x.waiting, "requests")],
          limit,
          result: kvFails ? "not_evaluated" : x.reason === "queue_depth" ? "fail" : "pass",
          margin: kvFails ? 0 : limit - x.waiting,
        },
      ],
    };
  }
}

export function reasonEntry(code: string): ReasonEntry {
  return (
    reasons.find((r) => r.code === code) ?? {
      code,
      verdict: "reject",
      status: 429,
      label: code,
      doc: "Not in the catalogue.",
    }
  );
}
