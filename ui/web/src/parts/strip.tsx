// The status strip: what must be known at a glance, always on top.
import type { CountWindow } from "../api";
import { store } from "../app";
import { age, count, duration, instant, NONE, percent, rate, shortRev, si, utc } from "../core/format";
import * as view from "../view";
import { VerdictGlyph } from "./icons";

/** NVML is polled once a second; the scrape interval is told by the server. */
const GPU_INTERVAL_MS = 1000;

function Tile(p: { label: string; title?: string; class?: string; children: preact.ComponentChildren }) {
  return (
    <div class={`tile ${p.class ?? ""}`} title={p.title}>
      <dt>{p.label}</dt>
      <dd>{p.children}</dd>
    </div>
  );
}

export function engineTone(state: string): string {
  if (state === "ready") return "good";
  if (state === "failed" || state === "wedged") return "bad";
  if (state === "stalled") return "warn";
  return "calm";
}

function EngineTile() {
  const engine = store.pool?.engine;
  const state = store.engine || engine?.state || "";
  const now = Date.now();
  const ready = instant(engine?.ready_at);
  const since = instant(engine?.since);
  const up = state === "ready" && ready !== null ? `up ${duration(now - ready)}` : "";
  const inState = state !== "ready" && since !== null ? `for ${duration(now - since)}` : "";
  return (
    <Tile label="Engine" class="engine" title={engine?.text}>
      <span class={`dot ${engineTone(state)}`} aria-hidden="true" />
      <b>{state === "" ? "unknown" : state}</b>
      {engine?.phase ? <span class="sub">{engine.phase.replaceAll("_", " ")}</span> : null}
      <span class="sub model">{store.pool?.model ?? store.hello?.pool ?? ""}</span>
      <span class="sub">{up || inState}</span>
    </Tile>
  );
}

function PolicyTile() {
  const policy = store.policy;
  if (!policy) return <Tile label="Policy">{NONE}</Tile>;
  const since = instant(policy.at);
  const rev = store.rev || policy.rev;
  return (
    <Tile label="Policy" title={`revision ${rev}, from ${policy.source}${since ? `, since ${utc(since)}` : ""}`}>
      <b>{policy.name}</b>
      <span class="sub mono">@{shortRev(rev)}</span>
      <span class="sub">{since === null ? "" : duration(Date.now() - since)}</span>
    </Tile>
  );
}

/** Met over what was meant to be served, worked back from the two numbers that the API gives. */
export function goodputFraction(w: CountWindow | undefined): string {
  if (!w || w.goodput === null) return "nothing ended yet";
  const of = w.goodput > 0 ? Math.round(w.slo_met / w.goodput) : w.ended + w.deferred + w.rejected;
  return `${count(w.slo_met)} met their SLO of ${count(of)} that were meant to be served`;
}

function GoodputTile() {
  const [one, five] = store.pool?.windows ?? [];
  const live = store.latest("goodput_1m");
  const now = Number.isFinite(live) ? live : (one?.goodput ?? null);
  return (
    <Tile label="Goodput" title={`1 min: ${goodputFraction(one)}; 5 min: ${goodputFraction(five)}`}>
      <span class="share">
        <b>{percent(now)}</b>
        <span class="sub">1 m</span>
      </span>
      <span class="share">
        <b>{percent(five?.goodput)}</b>
        <span class="sub">5 m</span>
      </span>
    </Tile>
  );
}

function SharesTile() {
  const w = store.pool?.windows?.[0];
  const total = w ? w.admitted + w.deferred + w.rejected : 0;
  const share = (n: number | undefined) => (total > 0 ? percent((n ?? 0) / total, 0) : NONE);
  const title = w
    ? `last minute: ${count(w.admitted)} admitted, ${count(w.deferred)} deferred, ${count(w.rejected)} rejected`
    : undefined;
  return (
    <Tile label="Admit · defer · reject" class="shares" title={title}>
      {(["admit", "defer", "reject"] as const).map((v, i) => (
        <span class="share" key={v}>
          <VerdictGlyph verdict={v} size={10} />
          <span class="sr">{v} </span>
          <b>{share([w?.admitted, w?.deferred, w?.rejected][i])}</b>
        </span>
      ))}
    </Tile>
  );
}

/** The slowest pace of scraping, in ms: the interval changes with the load, and one slow step is no stale signal. */
const SLOWEST = 1000;

function signalAge(name: string, ms: number, interval: number) {
  const limit = 3 * Math.max(interval, SLOWEST);
  const stale = Number.isFinite(ms) && ms > limit;
  const none = !Number.isFinite(ms);
  return (
    <span class={stale ? "age stale" : "age"} title={`${name}: stale above ${duration(limit)}`}>
      <span class="sub">{name}</span> <b>{none ? NONE : age(ms)}</b>
      {stale ? <span class="flag">stale</span> : null}
    </span>
  );
}

function SignalsTile() {
  const pool = store.pool;
  const gpu = pool?.gpu;
  const interval = pool?.scrape.interval_ms || 1000;
  return (
    <Tile label="Signal age" class="signals" title={pool?.scrape.error}>
      {signalAge("scrape", store.latest("scrape_age_ms"), interval)}
      {gpu && gpu.state !== "ok" ? (
        <span class="age" title={gpu.why}>
          <span class="sub">gpu</span> <b class="none">{gpu.state}</b>
        </span>
      ) : (
        signalAge("gpu", store.latest("gpu_age_ms"), GPU_INTERVAL_MS)
      )}
    </Tile>
  );
}

function LedgerTile() {
  const ledger = store.pool?.ledger;
  const reserved = store.latest("reserved_tokens");
  return (
    <Tile label="In flight" class="ledger" title={`${si(reserved)} tokens reserved`}>
      <b>{count(store.latest("in_flight"))}</b>
      {ledger && ledger.slots > 0 ? <span class="sub">of {count(ledger.slots)} slots</span> : null}
      <span class="sub">held</span>
      <b>{count(store.latest("held"))}</b>
    </Tile>
  );
}

export function Strip() {
  view.slowTick.value;
  return (
    <section class="strip" aria-label="Status">
      <dl>
        <EngineTile />
        <PolicyTile />
        <GoodputTile />
        <Tile label="Arrivals" title="arrivals a second, last 10 s">
          <b>{rate(store.latest("arrivals_rate"))}</b>
          <span class="sub">/s</span>
        </Tile>
        <SharesTile />
        <LedgerTile />
        <SignalsTile />
      </dl>
    </section>
  );
}
