// The shapes of the admin API, a mirror of ui/api/*.go. A quantity that is not known is null, never 0.

export const STREAM_VERSION = 1;

export type Verdict = "admit" | "defer" | "reject";
export const VERDICTS: readonly Verdict[] = ["admit", "defer", "reject"];

/** Place of a verdict word in VERDICTS, -1 for another word. */
export function verdictIndex(word: unknown): number {
  return (VERDICTS as readonly unknown[]).indexOf(word);
}

export interface ReasonEntry {
  code: string;
  verdict: string;
  status: number;
  retry?: string;
  label: string;
  doc: string;
}

export interface PolicyInfo {
  name: string;
  rev: string;
  file?: string;
  at: string;
  source: string;
  note?: string;
}

export interface PhaseTime {
  name: string;
  began: string;
  took_ns: number;
  last_took_ns: number;
}

export interface Exit {
  at: string;
  text: string;
  wanted: boolean;
  cause?: string;
  hint?: string;
  tail?: string[];
}

export interface Trouble {
  code: string;
  since: string;
  act_at: string;
  next: string;
  hint: string;
}

export interface EngineStatus {
  kind: string;
  simulated: boolean;
  state: string;
  since: string;
  phase?: string;
  phases?: PhaseTime[];
  text: string;
  pid?: number;
  started: string;
  ready_at: string;
  restarts: number;
  restart_at: string;
  trouble?: Trouble;
  gave_up?: boolean;
  last_exit?: Exit;
  expected_ready_in_ns: number;
  model: string;
  max_model_len: number;
  version?: string;
  kv_capacity_tokens: number;
  slots: number;
  command?: string[];
  address: string;
}

export interface LedgerDigest {
  at: string;
  in_flight: number;
  held: number;
  reserved_tokens: number;
  slots: number;
  arrivals: number;
  admitted: number;
  deferred: number;
  rejected: number;
  settled: number;
  release_rate: number;
}

export interface SignalView {
  name: string;
  value: number | null;
  unit: string;
  source?: string;
  state: string;
  age_ms: number;
  why?: string;
}

export interface ScrapeStatus {
  seq: number;
  age_ms: number | null;
  took_ms: number;
  failures: number;
  error?: string;
  engine: string;
  version: string;
  interval_ms: number;
}

export interface CountWindow {
  seconds: number;
  arrivals: number;
  admitted: number;
  deferred: number;
  rejected: number;
  ended: number;
  slo_met: number;
  goodput: number | null;
  ttft_p50_ms: number | null;
  ttft_p95_ms: number | null;
  tpot_p50_ms: number | null;
  tpot_p95_ms: number | null;
}

export interface GPUProcess {
  pid: number;
  used_bytes: number | null;
  ours: boolean;
}

export interface GPUDevice {
  index: number;
  name: string;
  uuid: string;
  state: string;
  why?: string;
  memory_total_bytes: number | null;
  memory_used_bytes: number | null;
  memory_free_bytes: number | null;
  unified_memory: boolean;
  utilization: number | null;
  power_watts: number | null;
  temperature_celsius: number | null;
  throttle?: string[];
  ecc_uncorrected: number | null;
  last_xid: number | null;
  processes: GPUProcess[] | null;
}

export interface GPU {
  state: string;
  why?: string;
  driver?: string;
  age_ms: number | null;
  devices: GPUDevice[] | null;
}

export interface PoolStatus {
  model: string;
  aliases?: string[];
  engine: EngineStatus;
  policy: PolicyInfo;
  ledger: LedgerDigest;
  signals: SignalView[] | null;
  scrape: ScrapeStatus;
  gpu: GPU;
  windows: CountWindow[] | null;
}

export interface ConfigStatus {
  file?: string;
  last_reload_ok: boolean;
  last_reload_at: string | null;
  last_reload_from?: string;
  problem?: string;
}

export interface Status {
  version: string;
  boot_id: string;
  now: string;
  started_at: string;
  gate_address: string;
  ready: boolean;
  pools: PoolStatus[];
  config: ConfigStatus;
  websocket_clients: number;
  frames_dropped: number;
}

export interface PolicyNeed {
  signal: string;
  why: string;
  state: string;
}

export interface PolicyDocument extends PolicyInfo {
  text: string;
  spec: unknown;
  needs: PolicyNeed[] | null;
}

export interface PolicyRevision extends PolicyInfo {
  text: string;
}

export interface VerdictCount {
  admit: number;
  defer: number;
  reject: number;
}

export interface Flip {
  id: string;
  at: string;
  old: string;
  new: string;
  new_reason: string;
  message: string;
}

export interface DryRun {
  rev: string;
  window_decisions: number;
  from: string | null;
  to: string | null;
  old: VerdictCount;
  new: VerdictCount;
  flip_count: number;
  flips: Flip[] | null;
  skipped: number;
  after_first_flip: number;
  caveat: string;
}

export interface TraceInput {
  name: string;
  value: number;
  unit: string;
  state: string;
  age_ms: number;
}

export interface TraceStep {
  rule: string;
  text: string;
  inputs?: TraceInput[];
  limit: number;
  result: "pass" | "fail" | "unusable" | "not_evaluated";
  margin: number;
  note?: string;
}

export interface Decision {
  id: string;
  pool: string;
  model: string;
  path: string;
  stream: boolean;
  tenant: string;
  key_id?: string;
  class: string;
  session?: string;
  session_source?: string;
  attempt: number;
  prompt_tokens_estimated: number;
  output_tokens_estimated: number;
  output_cap: number | null;
  reserved_tokens: number;
  sequences: number;
  body_bytes: number;
  verdict: string;
  reason: string;
  message?: string;
  status?: number;
  retry_after_ms?: number;
  ticket?: boolean;
  held_ms?: number;
  decide_us: number;
  policy: string;
  policy_rev: string;
  snapshot_seq: number;
  signals?: SignalView[];
  ledger: { in_flight: number; unseen: number; held: number; reserved_tokens: number; slots: number };
  trace?: TraceStep[];
  counterfactual?: string;
}

export interface Outcome {
  id: string;
  ending: string;
  status: number;
  ttft_ms: number | null;
  tpot_ms: number | null;
  total_ms: number;
  prompt_tokens: number | null;
  cached_tokens: number | null;
  completion_tokens: number | null;
  estimated?: boolean;
  finish_reason?: string;
  error?: string;
  slo_met: boolean;
}

export interface SessionSibling {
  id: string;
  at: string;
  verdict: string;
  reason: string;
  attempt: number;
}

export interface DecisionItem {
  seq: number;
  at: string;
  decision: Decision;
  outcome: Outcome | null;
  reason_entry: ReasonEntry;
  session_siblings?: SessionSibling[];
}

export interface LogLine {
  seq: number;
  at: string;
  text: string;
}

export interface EngineLogs {
  lines: LogLine[] | null;
  lost: boolean;
  next: number;
}

export interface Gauge {
  name: string;
  unit: string;
}

export interface HistoryRows {
  gauges: Gauge[] | null;
  t_ms: number[] | null;
  rows: (number | null)[][] | null;
}

export interface ReloadResult {
  changed: boolean;
  rev: string;
  text: string;
  diff?: string[];
}

export interface Place {
  file?: string;
  line: number;
  column: number;
  field?: string;
  text: string;
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  errors?: Place[];
  fields?: string[];
}

export interface Envelope {
  v: number;
  seq: number;
  t: number;
  kind: string;
}

export interface Hello extends Envelope {
  kind: "hello";
  boot_id: string;
  version: string;
  pool: string;
  pools: string[];
  policy: PolicyInfo;
  gauges: Gauge[];
  decision_fields: string[];
  outcome_fields: string[];
  verdicts: string[];
  reasons: ReasonEntry[];
  strings: string[] | null;
  ring_from: number;
  ring_to: number;
  frame_ms: number;
  slo_ttft_ms: number | null;
  slo_tpot_ms: number | null;
  simulated: boolean;
}

export interface Snap extends Envelope {
  kind: "snap";
  status: Status;
  history: HistoryRows;
  decisions: DecisionItem[] | null;
  events: PastEvent[] | null;
}

/** An event from before the page was opened; t in milliseconds since the epoch. */
export interface PastEvent {
  t: number;
  name: string;
  level: string;
  text: string;
}

export type Cell = string | number | boolean | null;

export interface Frame extends Envelope {
  kind: "frame";
  g: (number | null)[];
  s?: string[];
  sb?: number;
  d?: Cell[][];
  o?: Cell[][];
  n: [number, number, number];
  sampled?: boolean;
  e: string;
  r: string;
}

/** Frames and events from..to are lost to this viewer; s are the strings that they would have interned. */
export interface Gap extends Envelope {
  kind: "gap";
  from: number;
  to: number;
  s?: string[];
  sb?: number;
}

export interface EventMessage extends Envelope {
  kind: "event";
  name: string;
  level: string;
  text: string;
}

export interface Bye extends Envelope {
  kind: "bye";
  why: string;
}

export type Message = Hello | Snap | Frame | Gap | EventMessage | Bye;

/** Subprotocols: the page offers the first one, and with a token the second one plus the token in base64url. */
export const STREAM_PROTOCOL = "admitd.v1";
export const TOKEN_PROTOCOL = "admitd.token.";

export interface Poll {
  messages: Message[] | null;
  next: number;
  more: boolean;
}

/** What a viewer may send: deliveries a second that it wants, 1 to 10. */
export interface ViewerMessage {
  rate: number;
}
