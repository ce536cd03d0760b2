// The Engine screen: where it stands, how it got there, what the GPU holds, what it says.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { restartEngine } from "../actions";
import type { EngineStatus, GPUDevice, PhaseTime } from "../api";
import { store } from "../app";
import { asSentence, bytes, clock, count, duration, instant, NONE, percent, si, utc } from "../core/format";
import { Dialog } from "../parts/dialogs";
import { engineTone } from "../parts/strip";
import * as view from "../view";
import { Log } from "./log";

/** The phase table's order; an engine may leave some out. */
const PHASES = ["launched", "engine_init", "weights", "compile", "kv_cache", "graphs", "warmup", "http", "probe"];
const PHASE_WORDS: Record<string, string> = {
  launched: "process launch",
  engine_init: "engine set-up",
  weights: "weights",
  compile: "compilation",
  kv_cache: "KV cache sizing",
  graphs: "graph capture",
  warmup: "warm-up",
  http: "HTTP server",
  probe: "probe",
};
const asking = signal(false);
const refused = signal("");

interface StepView {
  name: string;
  state: "done" | "now" | "next";
  tookMs: number | null;
  lastMs: number | null;
}

/** Phases that came, the one going on with its time so far, and the known ones still to come. */
export function steps(e: EngineStatus, now: number): StepView[] {
  const came = e.phases ?? [];
  const loading = e.state === "starting" || e.state === "loading";
  const out = came.map((p): StepView => {
    const going = loading && p.name === e.phase;
    const began = instant(p.began);
    const took = going ? (began === null ? null : now - began) : ms(p, "took_ns");
    return { name: p.name, state: going ? "now" : "done", tookMs: took, lastMs: ms(p, "last_took_ns") };
  });
  if (!loading) return out;
  const last = PHASES.indexOf(came.at(-1)?.name ?? "");
  for (const name of PHASES.slice(last + 1)) out.push({ name, state: "next", tookMs: null, lastMs: null });
  return out;
}

function ms(p: PhaseTime, key: "took_ns" | "last_took_ns"): number | null {
  return p[key] > 0 ? p[key] / 1e6 : null;
}

function Steps(p: { engine: EngineStatus }) {
  const all = steps(p.engine, Date.now());
  if (all.length === 0) return <p class="muted">This engine was not started here, so its start has no phases.</p>;
  const longest = Math.max(1, ...all.map((s) => Math.max(s.tookMs ?? 0, s.lastMs ?? 0)));
  const sum = all.reduce((n, s) => n + (s.tookMs ?? 0), 0);
  const lastSum = all.reduce((n, s) => n + (s.lastMs ?? 0), 0);
  return (
    <>
      <ol class="steps">
        {all.map((s) => (
          <li key={s.name} class={s.state} aria-current={s.state === "now" ? "step" : undefined}>
            <span class="step-dot" aria-hidden="true" />
            <span class="step-name">{PHASE_WORDS[s.name] ?? s.name.replaceAll("_", " ")}</span>
            <span class="step-bar" aria-hidden="true">
              <i style={{ width: `${((s.tookMs ?? 0) / longest) * 100}%` }} />
              {s.lastMs === null ? null : <u style={{ left: `${(s.lastMs / longest) * 100}%` }} />}
            </span>
            <span class="num">{s.state === "next" ? "" : duration(s.tookMs)}</span>
            <span class="num muted">{s.lastMs === null ? "" : duration(s.lastMs)}</span>
          </li>
        ))}
      </ol>
      <p class="muted small">
        {duration(sum)} in all
        {lastSum > 0 ? `; the mark and the grey number are the last good start (${duration(lastSum)})` : ""}.
      </p>
    </>
  );
}

function Pairs(p: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="pairs">
      {p.rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function State(p: { engine: EngineStatus }) {
  view.slowTick.value;
  const e = p.engine;
  const state = store.engine || e.state;
  const since = instant(e.since);
  const restart = instant(e.restart_at);
  const external = e.kind === "external";
  return (
    <section class="card">
      <div class="state-head">
        <span class={`dot ${engineTone(state)}`} aria-hidden="true" />
        <b>{state}</b>
        <span class="muted">{since === null ? "" : `for ${duration(Date.now() - since)}`}</span>
        <span class="spring" />
        {external ? null : (
          <button
            type="button"
            class="button danger"
            onClick={() => {
              asking.value = true;
            }}
          >
            Restart…
          </button>
        )}
      </div>
      <p class="sentence">{asSentence(e.text)}</p>
      {restart !== null && restart > Date.now() ? (
        <p class="countdown" role="timer">
          Next start in <b>{duration(restart - Date.now())}</b>
        </p>
      ) : null}
      {e.gave_up ? (
        <p class="countdown">admitd has given up restarting it; mend the cause, then restart it here.</p>
      ) : null}
      {refused.value === "" ? null : (
        <p class="countdown" role="alert">
          {refused.value}
        </p>
      )}
      <Pairs
        rows={[
          ["engine", `${e.kind}${e.version ? ` ${e.version}` : ""}${e.simulated ? " (simulated)" : ""}`],
          ["model", e.model || NONE],
          ["pid", e.pid ? String(e.pid) : NONE],
          [
            "address",
            <span class="mono" key="a">
              {e.address || NONE}
            </span>,
          ],
          ["context", e.max_model_len > 0 ? `${si(e.max_model_len)} tokens` : NONE],
          ["KV cache", e.kv_capacity_tokens > 0 ? `${count(e.kv_capacity_tokens)} tokens` : NONE],
          ["slots", e.slots > 0 ? count(e.slots) : NONE],
          ["restarts", count(e.restarts)],
        ]}
      />
      {e.command && e.command.length > 0 ? (
        <details>
          <summary>Launch command</summary>
          <code class="command-line">{e.command.join(" ")}</code>
        </details>
      ) : null}
    </section>
  );
}

function LastExit(p: { engine: EngineStatus }) {
  const x = p.engine.last_exit;
  if (!x) return null;
  const at = instant(x.at);
  return (
    <section class={x.wanted ? "card" : "card bad-edge"}>
      <h3>
        Last exit{" "}
        <span class="muted" title={at === null ? "" : utc(at)}>
          {at === null ? "" : clock(at, false)}
        </span>
      </h3>
      <p>
        {x.wanted ? "Asked for" : "Not asked for"}; {x.text}.
      </p>
      {x.cause ? <p class="sentence">{asSentence(x.cause)}</p> : null}
      {x.hint ? <p class="counterfactual">{asSentence(x.hint)}</p> : null}
      {x.tail && x.tail.length > 0 ? <pre class="tail">{x.tail.join("\n")}</pre> : null}
    </section>
  );
}

function Device(p: { device: GPUDevice }) {
  const g = p.device;
  const total = g.memory_total_bytes ?? 0;
  const procs = g.processes ?? [];
  const ours = procs.filter((x) => x.ours).reduce((n, x) => n + (x.used_bytes ?? 0), 0);
  const other = Math.max(0, (g.memory_used_bytes ?? 0) - ours);
  const part = (n: number) => `${total > 0 ? (n / total) * 100 : 0}%`;
  return (
    <div class="device">
      <p class="step-line">
        <b>
          {g.index} · {g.name}
        </b>
        {g.state === "ok" ? null : (
          <span class="state is-stale" title={g.why}>
            {g.state}
          </span>
        )}
        <span class="spring" />
        <span class="muted">
          {bytes(g.memory_used_bytes)} of {g.unified_memory ? "shared host memory" : bytes(g.memory_total_bytes)}
        </span>
      </p>
      {total > 0 ? (
        <div
          class="membar"
          role="img"
          aria-label={`engine ${bytes(ours)}, other ${bytes(other)}, total ${bytes(total)}`}
        >
          <i class="ours" style={{ width: part(ours) }} />
          <i class="other" style={{ width: part(other) }} />
        </div>
      ) : null}
      <p class="muted">
        load {percent(g.utilization, 0)} · {g.power_watts === null ? NONE : `${count(g.power_watts)} W`} ·{" "}
        {g.temperature_celsius === null ? NONE : `${count(g.temperature_celsius)} °C`} · ECC {count(g.ecc_uncorrected)}
        {g.last_xid === null ? "" : ` · Xid ${g.last_xid}`}
        {g.throttle && g.throttle.length > 0 ? ` · throttled: ${g.throttle.join(", ")}` : ""}
      </p>
      <ul class="procs">
        {procs.map((x) => (
          <li key={x.pid}>
            <span>pid {x.pid}</span> <b>{x.ours ? "engine" : "other"}</b> <span>{bytes(x.used_bytes)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function GPUCard() {
  const gpu = store.pool?.gpu;
  if (!gpu) return null;
  const devices = gpu.devices ?? [];
  return (
    <section class="card">
      <h3>
        GPU <span class="muted">{gpu.driver ? `driver ${gpu.driver}` : ""}</span>
      </h3>
      {gpu.state === "ok" ? null : (
        <p class="none-text wrap">
          <span class="none-mark" aria-hidden="true" />
          <b>{gpu.state === "unavailable" ? "No GPU on this machine" : `GPU ${gpu.state}`}</b>
          <span>{gpu.why ?? ""}</span>
        </p>
      )}
      {devices.map((g) => (
        <Device key={g.uuid || g.index} device={g} />
      ))}
    </section>
  );
}

function Ask() {
  view.slowTick.value;
  if (!asking.value) return null;
  const close = () => {
    asking.value = false;
  };
  const flight = store.latest("in_flight");
  return (
    <Dialog title="Restart the engine?" class="token" onClose={close}>
      <p>
        The gate closes, {count(flight)} requests in flight are drained, then the engine is stopped and started again.
        Callers are deferred until it is ready.
      </p>
      <div class="row">
        <button type="button" class="button" onClick={close}>
          Leave it running
        </button>
        <button
          type="button"
          class="button danger"
          onClick={() => {
            close();
            void restartEngine().then((why) => {
              refused.value = why;
            });
          }}
        >
          Restart it
        </button>
      </div>
    </Dialog>
  );
}

export function Engine() {
  view.slowTick.value;
  const engine = store.pool?.engine;
  if (!engine) {
    return (
      <div class="empty page">
        <b>Nothing is known about the engine yet</b>
      </div>
    );
  }
  return (
    <div class="screen engine-screen">
      <div class="columns-2 even">
        <div>
          <State engine={engine} />
          <LastExit engine={engine} />
          <section class="card">
            <h3>Start, phase by phase</h3>
            <Steps engine={engine} />
          </section>
          <GPUCard />
        </div>
        <Log />
      </div>
      <Ask />
    </div>
  );
}
