// The Policy screen: what runs, a draft beside it, what the draft would change, and the way back.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import * as act from "../actions";
import type { DryRun, VerdictCount } from "../api";
import { asSentence, clock, count, duration, instant, percent, shortRev, utc } from "../core/format";
import { lineDiff, settingChanges } from "../core/textdiff";
import { Dialog } from "../parts/dialogs";
import { VerdictGlyph } from "../parts/icons";
import * as view from "../view";
import * as d from "./draft";

/** Refusals that rise by more than this share ask for a second look before the change is made. */
const RISE = 0.1;
const confirm = signal(false);

export function refusedShare(c: VerdictCount): number {
  const all = c.admit + c.defer + c.reject;
  return all === 0 ? 0 : (c.defer + c.reject) / all;
}

function Editor() {
  const gutter = useRef<HTMLPreElement>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  const wrong = new Set(d.places.value.map((p) => p.line));
  const lines = d.text.value.split("\n");
  const jump = (line: number, column: number) => {
    const el = area.current;
    if (!el) return;
    const before = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
    el.focus();
    el.setSelectionRange(before + Math.max(0, column - 1), before + (lines[line - 1]?.length ?? 0));
  };
  return (
    <>
      <div class="editor">
        <pre class="gutter" ref={gutter} aria-hidden="true">
          {lines.map((_, i) => (
            <span key={i} class={wrong.has(i + 1) ? "wrong" : ""}>
              {i + 1}
            </span>
          ))}
        </pre>
        <textarea
          ref={area}
          aria-label="Policy draft"
          aria-invalid={wrong.size > 0}
          aria-describedby="places"
          spellcheck={false}
          wrap="off"
          rows={Math.max(16, lines.length + 1)}
          value={d.text.value}
          onInput={(e) => d.edit(e.currentTarget.value)}
          onScroll={(e) => {
            if (gutter.current) gutter.current.scrollTop = e.currentTarget.scrollTop;
          }}
        />
      </div>
      <ul class="places" id="places">
        {d.places.value.map((p) => (
          <li key={`${p.line}:${p.column}${p.text}`}>
            <button type="button" onClick={() => jump(p.line, p.column)}>
              <span class="mono">
                {p.line}:{p.column}
              </span>{" "}
              {p.field ? <b>{p.field}: </b> : null}
              {p.text}
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

function ProblemNote() {
  const p = d.problem.value;
  // A missing token is asked for by its own dialog.
  if (!p || p.status === 401) return null;
  return (
    <div class="banner bad" role="alert">
      <b>{p.title}</b>
      {d.places.value.length > 0 ? null : <span>{asSentence(p.detail)}</span>}
      {p.fields && p.fields.length > 0 ? <span>{p.fields.join(", ")}</span> : null}
      {p.status === 412 ? (
        <button type="button" class="button" onClick={() => void d.rebase()}>
          Keep the draft and compare it with what runs now
        </button>
      ) : null}
    </div>
  );
}

function Actions() {
  const checked = d.dryRun.value !== null;
  const busy = d.busy.value;
  const rises = d.dryRun.value && refusedShare(d.dryRun.value.new) - refusedShare(d.dryRun.value.old) > RISE;
  return (
    <div class="row policy-actions">
      <button type="button" class="button" disabled={!d.changed.value || busy !== ""} onClick={() => void d.check()}>
        {busy === "check" ? "Judging the recorded window…" : "Check and dry-run"}
      </button>
      <button
        type="button"
        class="button primary"
        disabled={!d.changed.value || !checked || busy !== ""}
        title={checked ? "" : "Check this draft first"}
        onClick={() => {
          if (rises) confirm.value = true;
          else void d.apply();
        }}
      >
        {busy === "apply" ? "Applying…" : "Apply"}
      </button>
      <button type="button" class="button" disabled={!d.changed.value || busy !== ""} onClick={d.discard}>
        Discard the draft
      </button>
      <input
        type="text"
        class="note"
        aria-label="Note for the history"
        placeholder="Note for the history"
        maxLength={500}
        value={d.note.value}
        onInput={(e) => {
          d.note.value = e.currentTarget.value;
        }}
      />
    </div>
  );
}

function Changes() {
  const before = d.running.value?.text ?? "";
  if (!d.changed.value) {
    return (
      <p class="muted pad">The draft is what runs. Change it, then check it; nothing is applied before you say so.</p>
    );
  }
  const changes = settingChanges(before, d.text.value);
  return (
    <>
      <section class="card">
        <h3>Settings that change</h3>
        {changes.length === 0 ? <p class="muted">None; only comments or layout.</p> : null}
        <ul class="settings">
          {changes.map((c) => (
            <li key={c.path}>
              <span class="mono">{c.path}</span>
              <span>
                <del>{c.before ?? "not set"}</del> → <ins>{c.after ?? "not set"}</ins>
              </span>
            </li>
          ))}
        </ul>
      </section>
      <section class="card">
        <h3>Lines that change</h3>
        <pre class="diff" tabIndex={0} role="region" aria-label="Unified diff">
          {lineDiff(before, d.text.value).map((l, i) => (
            <span key={i} class={l.kind}>
              {l.kind === "skip" ? "⋯" : `${l.kind === "add" ? "+" : l.kind === "drop" ? "−" : " "} ${l.text}`}
            </span>
          ))}
        </pre>
      </section>
    </>
  );
}

function VerdictRow(p: { name: "admit" | "defer" | "reject"; run: DryRun }) {
  const before = p.run.old[p.name];
  const after = p.run.new[p.name];
  const moved = after - before;
  return (
    <tr>
      <th scope="row">
        <VerdictGlyph verdict={p.name} /> {p.name}
      </th>
      <td class="num">{count(before)}</td>
      <td class="num">{count(after)}</td>
      <td class="num">{moved === 0 ? "±0" : `${moved > 0 ? "+" : "−"}${count(Math.abs(moved))}`}</td>
    </tr>
  );
}

function DryRunResult() {
  const run = d.dryRun.value;
  if (!run) return null;
  const from = instant(run.from);
  const to = instant(run.to);
  return (
    <section class="card" aria-label="Dry run">
      <h3>
        Dry run over {count(run.window_decisions)} recorded decisions
        {from !== null && to !== null ? <span class="muted"> · {duration(to - from)}</span> : null}
      </h3>
      <table class="facts">
        <thead>
          <tr>
            <th scope="col">Verdict</th>
            <th scope="col" class="num">
              as it was
            </th>
            <th scope="col" class="num">
              with the draft
            </th>
            <th scope="col" class="num">
              change
            </th>
          </tr>
        </thead>
        <tbody>
          <VerdictRow name="admit" run={run} />
          <VerdictRow name="defer" run={run} />
          <VerdictRow name="reject" run={run} />
        </tbody>
      </table>
      <p class="caveat">
        {run.caveat}{" "}
        {run.flip_count > 0 ? `${percent(run.after_first_flip, 0)} of the arrivals came after the first flip.` : ""}
        {run.skipped > 0 ? ` ${count(run.skipped)} arrivals that no policy judges were left out.` : ""}
      </p>
      {run.flip_count === 0 ? <p>No decision would have been different.</p> : <Flips run={run} />}
    </section>
  );
}

function Flips(p: { run: DryRun }) {
  const flips = p.run.flips ?? [];
  return (
    <>
      <h3>
        {count(p.run.flip_count)} {p.run.flip_count === 1 ? "decision" : "decisions"} would flip
        {p.run.flip_count > flips.length ? <span class="muted"> · the first {flips.length}</span> : null}
      </h3>
      <ul class="siblings">
        {flips.map((f) => (
          <li key={f.id}>
            <button
              type="button"
              class="sibling"
              title={f.message}
              onClick={() => {
                act.open(f.id);
                act.showTab("live");
              }}
            >
              <VerdictGlyph verdict={f.old} /> {f.old} → <VerdictGlyph verdict={f.new} /> {f.new}
              <span class="muted">{f.new_reason === "ok" ? "" : f.new_reason.replaceAll("_", " ")}</span>
              <time title={utc(Date.parse(f.at))}>{clock(Date.parse(f.at))}</time>
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

function Running() {
  view.slowTick.value;
  const p = d.running.value;
  if (!p) return <p class="muted pad">Loading…</p>;
  const since = instant(p.at);
  return (
    <section class="card">
      <h3>Running</h3>
      <p class="policy-name">
        <b>{p.name}</b>
        <span class="mono muted">@{shortRev(p.rev)}</span>
      </p>
      <p class="muted">
        from {p.source}
        {p.file ? ` (${p.file})` : ""}
        {since === null ? "" : `, for ${duration(Date.now() - since)}`}
        {p.note ? ` — ${p.note}` : ""}
      </p>
      {(p.needs ?? []).length > 0 ? (
        <ul class="needs">
          {(p.needs ?? []).map((n) => (
            <li key={n.signal}>
              <b>{n.signal.replaceAll("_", " ")}</b> <span class={`state is-${n.state}`}>{n.state}</span>
              <span class="muted"> {n.why}</span>
            </li>
          ))}
        </ul>
      ) : (
        <p class="muted">It needs no signal from the engine.</p>
      )}
    </section>
  );
}

function History() {
  view.slowTick.value;
  return (
    <section class="card">
      <h3>History</h3>
      <ul class="history">
        {d.history.value.map((h, i) => {
          const at = instant(h.at);
          return (
            <li key={`${h.rev}${h.at}`}>
              <span>
                <b>{h.name}</b>
                <span class="mono muted">@{shortRev(h.rev)}</span>
              </span>
              <span class="muted" title={at === null ? "" : utc(at)}>
                {h.source}
                {at === null ? "" : `, ${duration(Date.now() - at)} ago`}
                {h.note ? ` — ${h.note}` : ""}
              </span>
              <span class="row">
                <button type="button" class="button" onClick={() => d.edit(h.text)}>
                  Load
                </button>
                {i === 0 ? (
                  <span class="now">running</span>
                ) : (
                  <button
                    type="button"
                    class="button"
                    disabled={d.busy.value !== ""}
                    onClick={() => void d.revert(h.rev)}
                  >
                    Revert to it
                  </button>
                )}
              </span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Applied() {
  view.slowTick.value;
  const a = d.applied.value;
  if (!a || Date.now() - a.at > 300_000) return null;
  return (
    <div class="banner" role="status">
      <b>Applied {shortRev(a.result.rev)}</b>
      <span>
        {duration(Math.max(1000, Date.now() - a.at))} ago. {(a.result.diff ?? []).join("; ")}
      </span>
      <span class="spring" />
      {a.from === "" ? null : (
        <button type="button" class="button" onClick={() => void d.revert(a.from)}>
          Go back to {shortRev(a.from)}
        </button>
      )}
    </div>
  );
}

function Confirm() {
  const run = d.dryRun.value;
  if (!confirm.value || !run) return null;
  const close = () => {
    confirm.value = false;
  };
  return (
    <Dialog title="Apply a stricter policy?" class="token" onClose={close}>
      <p>
        In the recorded window this draft would have refused {percent(refusedShare(run.new), 0)} of the arrivals,
        instead of {percent(refusedShare(run.old), 0)}.
      </p>
      <div class="row">
        <button type="button" class="button" onClick={close}>
          Not now
        </button>
        <button
          type="button"
          class="button danger"
          onClick={() => {
            close();
            void d.apply();
          }}
        >
          Apply it
        </button>
      </div>
    </Dialog>
  );
}

export function Policy() {
  useEffect(() => {
    void d.load();
  }, []);
  return (
    <div class="screen">
      <Applied />
      <div class="columns-2">
        <div>
          <section class="card">
            <h3>Draft {d.changed.value ? <span class="now">changed</span> : null}</h3>
            <Editor />
            <ProblemNote />
            <Actions />
          </section>
          <Changes />
          <DryRunResult />
        </div>
        <div>
          <Running />
          <History />
        </div>
      </div>
      <Confirm />
    </div>
  );
}
