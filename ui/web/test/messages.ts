// Small messages for tests.
import type { DecisionItem, Frame, Hello, Snap, Status } from "../src/api";

export const reasons = [
  { code: "ok", verdict: "admit", status: 0, label: "admitted", doc: "" },
  { code: "kv_pressure", verdict: "defer", status: 503, retry: "after", label: "KV cache full", doc: "" },
  { code: "saturated", verdict: "reject", status: 529, retry: "after", label: "pool saturated", doc: "" },
];

export function hello(over: Partial<Hello> = {}): Hello {
  return {
    v: 1,
    seq: 100,
    t: 1_000_000,
    kind: "hello",
    boot_id: "a",
    version: "1",
    pool: "m",
    pools: ["m"],
    policy: { name: "dual-gate", rev: "r1", at: "2026-11-30T00:00:00Z", source: "file" },
    gauges: [
      { name: "kv_used", unit: "fraction" },
      { name: "running", unit: "requests" },
    ],
    decision_fields: [
      "id",
      "t",
      "verdict",
      "reason",
      "status",
      "tenant",
      "class",
      "session",
      "attempt",
      "prompt_tokens",
    ],
    outcome_fields: [
      "id",
      "ending",
      "status",
      "ttft_ms",
      "tpot_ms",
      "total_ms",
      "prompt_tokens",
      "completion_tokens",
      "slo_met",
    ],
    verdicts: ["admit", "defer", "reject"],
    reasons,
    strings: ["acme", "default"],
    ring_from: 1,
    ring_to: 100,
    frame_ms: 100,
    slo_ttft_ms: 1000,
    slo_tpot_ms: null,
    simulated: false,
    ...over,
  };
}

export function frame(seq: number, over: Partial<Frame> = {}): Frame {
  return {
    v: 1,
    seq,
    t: 1_000_000 + seq * 100,
    kind: "frame",
    g: [0.5, 3],
    n: [0, 0, 0],
    e: "ready",
    r: "r1",
    ...over,
  };
}

export function snap(seq: number, over: Partial<Snap> = {}): Snap {
  return {
    v: 1,
    seq,
    t: 1_000_000 + seq * 100,
    kind: "snap",
    status: { pools: [] as unknown } as Status,
    history: { gauges: null, t_ms: [], rows: [] },
    decisions: [],
    events: [],
    ...over,
  };
}

export function item(id: string, t: number, over: Partial<DecisionItem["decision"]> = {}): DecisionItem {
  return {
    seq: t,
    at: new Date(t).toISOString(),
    outcome: null,
    reason_entry: reasons[0] as DecisionItem["reason_entry"],
    decision: {
      id,
      pool: "m",
      model: "m",
      path: "/v1/chat/completions",
      stream: true,
      tenant: "acme",
      class: "default",
      session: "s1",
      attempt: 0,
      prompt_tokens_estimated: 100,
      output_tokens_estimated: 50,
      output_cap: null,
      reserved_tokens: 150,
      sequences: 1,
      body_bytes: 400,
      verdict: "admit",
      reason: "ok",
      decide_us: 10,
      policy: "dual-gate",
      policy_rev: "r1",
      snapshot_seq: 1,
      ledger: { in_flight: 0, unseen: 0, held: 0, reserved_tokens: 0, slots: 0 },
      ...over,
    },
  };
}
