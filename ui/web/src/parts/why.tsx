// The sections of the "why" drawer.
import type { ComponentChildren } from "preact";
import * as act from "../actions";
import type { DecisionItem, SignalView, TraceStep } from "../api";
import { age, asSentence, bytes, clock, count, duration, NONE, percent, si, utc, withUnit } from "../core/format";
import { VerdictGlyph } from "./icons";

function Section(p: { title: string; children: ComponentChildren }) {
  return (
    <section class="why">
      <h3>{p.title}</h3>
      {p.children}
    </section>
  );
}

const RESULT: Record<TraceStep["result"], { mark: string; word: string }> = {
  pass: { mark: "✓", word: "pass" },
  fail: { mark: "✕", word: "decided here" },
  unusable: { mark: "!", word: "not usable" },
  not_evaluated: { mark: "·", word: "not evaluated" },
};

function unitOf(step: TraceStep): string {
  return step.inputs?.find((i) => i.state !== "param")?.unit ?? step.inputs?.[0]?.unit ?? "";
}

function Step(p: { step: TraceStep; index: number }) {
  const s = p.step;
  const result = RESULT[s.result] ?? { mark: "?", word: s.result };
  const judged = s.result === "pass" || s.result === "fail";
  return (
    <li class={`step ${s.result}`}>
      <span class="step-mark" aria-hidden="true">
        {result.mark}
      </span>
      <div>
        <p class="step-line">
          <b>{s.rule.replaceAll("_", " ")}</b>
          <span class="step-word">{result.word}</span>
          {judged ? (
            <span class="step-margin" title="limit minus value">
              margin {s.margin < 0 ? "−" : "+"}
              {withUnit(Math.abs(s.margin), unitOf(s))}
            </span>
          ) : null}
        </p>
        <p>{s.text}</p>
        {s.inputs && s.inputs.length > 0 ? (
          <ul class="inputs">
            {s.inputs.map((i) => (
              <li key={i.name}>
                <span>{i.name.replaceAll("_", " ")}</span> <b>{withUnit(i.value, i.unit)}</b>{" "}
                <span class={`state is-${i.state}`}>
                  {i.state}
                  {i.age_ms > 0 ? ` ${age(i.age_ms)} old` : ""}
                </span>
              </li>
            ))}
          </ul>
        ) : null}
        {s.note ? <p class="muted">{s.note}</p> : null}
      </div>
    </li>
  );
}

export function Trace(p: { steps: TraceStep[] }) {
  if (p.steps.length === 0) {
    return (
      <Section title="Rules">
        <p class="muted">No rule was asked: it was decided before the policy.</p>
      </Section>
    );
  }
  return (
    <Section title="Rules, in order">
      <ol class="trace">
        {p.steps.map((s, i) => (
          <Step key={s.rule} step={s} index={i} />
        ))}
      </ol>
    </Section>
  );
}

export function Counterfactual(p: { item: DecisionItem }) {
  const text = p.item.decision.counterfactual;
  if (!text) return null;
  return (
    <Section title="What would have changed it">
      <p class="counterfactual">{asSentence(text)}</p>
    </Section>
  );
}

function SignalRow(p: { s: SignalView }) {
  const s = p.s;
  return (
    <tr>
      <th scope="row" title={s.source}>
        {s.name.replaceAll("_", " ")}
      </th>
      <td class="num">{withUnit(s.value, s.unit)}</td>
      <td>
        <span class={`state is-${s.state}`} title={s.why}>
          {s.state}
        </span>
      </td>
      <td class="num">{s.state === "missing" ? NONE : age(s.age_ms)}</td>
    </tr>
  );
}

export function StateSeen(p: { item: DecisionItem }) {
  const d = p.item.decision;
  const signals = d.signals ?? [];
  return (
    <Section title="What it saw">
      {signals.length === 0 ? (
        <p class="muted">No signals were read.</p>
      ) : (
        <table class="facts">
          <thead>
            <tr>
              <th scope="col">Signal</th>
              <th scope="col" class="num">
                Value
              </th>
              <th scope="col">State</th>
              <th scope="col" class="num">
                Age
              </th>
            </tr>
          </thead>
          <tbody>
            {signals.map((s) => (
              <SignalRow key={s.name} s={s} />
            ))}
          </tbody>
        </table>
      )}
      <Facts
        rows={[
          ["in flight, by the ledger", count(d.ledger.in_flight)],
          ["of these sent after the last scrape", count(d.ledger.unseen)],
          ["held in the gate", count(d.ledger.held)],
          ["tokens reserved", si(d.ledger.reserved_tokens)],
          ["engine slots", d.ledger.slots > 0 ? count(d.ledger.slots) : NONE],
        ]}
      />
    </Section>
  );
}

function Facts(p: { rows: [string, ComponentChildren][] }) {
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

export function Request(p: { item: DecisionItem }) {
  const d = p.item.decision;
  return (
    <Section title="The request">
      <Facts
        rows={[
          [
            "path",
            <span class="mono" key="p">
              {d.path}
            </span>,
          ],
          ["model", d.model],
          ["tenant, class", `${d.tenant || NONE}, ${d.class || NONE}`],
          [
            "session",
            d.session ? `${d.session}${d.session_source ? ` (${d.session_source.replaceAll("_", " ")})` : ""}` : NONE,
          ],
          ["try", d.attempt === 0 ? "first" : `retry ${d.attempt}`],
          ["prompt, estimated", `${si(d.prompt_tokens_estimated)} tokens from ${bytes(d.body_bytes)}`],
          [
            "output, estimated",
            `${si(d.output_tokens_estimated)} tokens${d.output_cap === null ? ", no cap given" : `, cap ${si(d.output_cap)}`}`,
          ],
          ["reserved", `${si(d.reserved_tokens)} tokens${d.sequences > 1 ? ` for ${d.sequences} sequences` : ""}`],
          ["streamed", d.stream ? "yes" : "no"],
        ]}
      />
      <p class="muted small">Prompt and answer text are never kept, only sizes and hashes.</p>
    </Section>
  );
}

function error(estimated: number, real: number | null): string {
  if (real === null) return NONE;
  if (real === 0) return si(0);
  const off = (estimated - real) / real;
  return `${si(real)} (estimate ${off >= 0 ? "+" : "−"}${percent(Math.abs(off), 0)})`;
}

export function Afterwards(p: { item: DecisionItem }) {
  const { decision: d, outcome: o } = p.item;
  if (d.verdict !== "admit") {
    const wait = d.retry_after_ms
      ? `The caller was told to come back in ${duration(d.retry_after_ms)}${d.ticket ? ", with a ticket" : ""}.`
      : "The caller was told not to try again.";
    return (
      <Section title="What came after">
        <p>{wait}</p>
      </Section>
    );
  }
  if (!o) {
    return (
      <Section title="What came after">
        <p class="muted">It still runs.</p>
      </Section>
    );
  }
  return (
    <Section title="What came after">
      <p>
        {o.slo_met ? "It met its SLO" : "It missed its SLO"}; it ended as “{o.ending.replaceAll("_", " ")}”
        {o.error ? `: ${o.error}` : ""}.
      </p>
      <Facts
        rows={[
          ["time to first token", duration(o.ttft_ms)],
          ["time per output token", duration(o.tpot_ms)],
          ["total", duration(o.total_ms)],
          ["prompt tokens", error(d.prompt_tokens_estimated, o.prompt_tokens)],
          ["of these cached", o.cached_tokens === null ? NONE : si(o.cached_tokens)],
          [
            "output tokens",
            `${error(d.output_tokens_estimated, o.completion_tokens)}${o.estimated ? ", counted" : ""}`,
          ],
          ["status to the caller", String(o.status)],
        ]}
      />
    </Section>
  );
}

export function Session(p: { item: DecisionItem }) {
  const all = p.item.session_siblings ?? [];
  if (all.length === 0) return null;
  const own = Date.parse(p.item.at);
  return (
    <Section title="The same session">
      <ul class="siblings">
        {all.map((s) => (
          <li key={s.id}>
            <button
              type="button"
              class="sibling"
              aria-current={s.id === p.item.decision.id ? "true" : undefined}
              onClick={() => act.open(s.id)}
            >
              <VerdictGlyph verdict={s.verdict} />
              <span>{s.verdict}</span>
              <span class="muted">{s.reason === "ok" ? "" : s.reason.replaceAll("_", " ")}</span>
              <span class="muted">{s.attempt > 0 ? `retry ${s.attempt}` : ""}</span>
              <time title={utc(Date.parse(s.at))}>{offset(Date.parse(s.at) - own, Date.parse(s.at))}</time>
            </button>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function offset(ms: number, t: number): string {
  if (ms === 0) return "this one";
  if (Math.abs(ms) > 3_600_000) return clock(t, false);
  return `${ms > 0 ? "+" : "−"}${duration(Math.abs(ms))}`;
}
