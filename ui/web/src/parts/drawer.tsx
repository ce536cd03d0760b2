// "Why": everything one decision saw, in the order in which a person asks.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import * as act from "../actions";
import type { DecisionItem } from "../api";
import { asSentence, clock, count, duration, shortRev, utc } from "../core/format";
import { rest } from "../rest";
import * as view from "../view";
import { Icon, VerdictGlyph } from "./icons";
import { Afterwards, Counterfactual, Request, Session, StateSeen, Trace } from "./why";

type Loaded = { state: "loading" } | { state: "failed"; text: string } | { state: "ok"; item: DecisionItem };

const loaded = signal<Loaded>({ state: "loading" });
const copied = signal("");

function useDecision(id: string): void {
  useEffect(() => {
    let stopped = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    if (loaded.value.state !== "ok") loaded.value = { state: "loading" };
    const load = async () => {
      const reply = await rest<DecisionItem>("GET", act.poolPath(`/api/v1/decisions/${encodeURIComponent(id)}`));
      if (stopped) return;
      if (!reply.ok) {
        const gone =
          reply.status === 404 ? "The ring no longer holds this decision; admitd explain may find it on disk." : "";
        loaded.value = { state: "failed", text: gone || reply.problem.detail || reply.problem.title };
        return;
      }
      loaded.value = { state: "ok", item: reply.body };
      // An admitted request that still runs will have an outcome later.
      if (reply.body.decision.verdict === "admit" && !reply.body.outcome) timer = setTimeout(() => void load(), 1500);
    };
    void load();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [id]);
}

/** The verdict in one plain sentence: the policy's own words, else the catalogue's. */
export function sentence(item: DecisionItem): string {
  const d = item.decision;
  if (d.message) return asSentence(d.message);
  if (d.verdict === "admit") {
    const held = d.held_ms ? ` after ${duration(d.held_ms)} in the gate` : "";
    return `Admitted${held}: every rule of ${d.policy} let it through.`;
  }
  return item.reason_entry.doc;
}

async function copy(name: string, text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    copied.value = name;
  } catch {
    copied.value = "refused";
  }
  setTimeout(() => {
    copied.value = "";
  }, 2000);
}

function Buttons(p: { item: DecisionItem }) {
  const d = p.item.decision;
  const word = copied.value;
  return (
    <div class="row buttons">
      <button type="button" class="button" onClick={() => void copy("json", JSON.stringify(p.item, null, 2))}>
        {word === "json" ? "Copied" : "Copy JSON"}
      </button>
      <button type="button" class="button" onClick={() => void copy("explain", `admitd explain ${d.id}`)}>
        {word === "explain" ? "Copied" : "Copy explain command"}
      </button>
      <button type="button" class="button" onClick={() => act.addFilter(`reason:${d.reason}`)}>
        Filter reason
      </button>
      {d.session ? (
        <button type="button" class="button" onClick={() => act.addFilter(`session:${d.session}`)}>
          Filter session
        </button>
      ) : null}
      <span class="sr" role="status">
        {word === "" ? "" : word === "refused" ? "The browser refused to copy" : "Copied"}
      </span>
    </div>
  );
}

const FATE_WORDS = { met: "met its SLO", missed: "missed its SLO", running: "still running" };

function Head(p: { item: DecisionItem }) {
  const d = p.item.decision;
  const t = Date.parse(p.item.at);
  const outcome = p.item.outcome ? (p.item.outcome.slo_met ? "met" : "missed") : "running";
  return (
    <>
      <p class={`verdict ${d.verdict}`}>
        <VerdictGlyph verdict={d.verdict} outcome={d.verdict === "admit" ? outcome : undefined} size={16} />
        <b>{d.verdict}</b>
        {d.verdict === "admit" ? (
          <span class={outcome}>{FATE_WORDS[outcome]}</span>
        ) : (
          <>
            <span>{p.item.reason_entry.label}</span>
            <span class="code">{d.status ?? p.item.reason_entry.status}</span>
          </>
        )}
        <time title={utc(t)}>{clock(t)}</time>
      </p>
      <p class="sentence">{sentence(p.item)}</p>
      <p class="muted small">
        {d.policy}
        <span class="mono">@{shortRev(d.policy_rev)}</span> decided in {duration(d.decide_us / 1000)} on scrape{" "}
        {count(d.snapshot_seq)}
      </p>
    </>
  );
}

function Body() {
  const l = loaded.value;
  if (l.state === "loading") return <p class="muted">Loading…</p>;
  if (l.state === "failed") {
    return (
      <div class="empty">
        <b>Not to be had</b>
        <span>{l.text}</span>
      </div>
    );
  }
  return (
    <>
      <Head item={l.item} />
      <Buttons item={l.item} />
      <Trace steps={l.item.decision.trace ?? []} />
      <Counterfactual item={l.item} />
      <StateSeen item={l.item} />
      <Request item={l.item} />
      <Afterwards item={l.item} />
      <Session item={l.item} />
    </>
  );
}

function Open(p: { id: string }) {
  useDecision(p.id);
  const ref = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    ref.current?.focus({ preventScroll: true });
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
      loaded.value = { state: "loading" };
    };
  }, []);
  return (
    <aside
      class="drawer"
      ref={ref}
      tabIndex={-1}
      aria-label="Why this decision"
      onKeyDown={(e) => {
        if (e.key !== "Escape") return;
        e.preventDefault();
        act.closeDrawer();
      }}
    >
      <div class="drawer-head">
        <h2>Why</h2>
        <span class="mono muted id" title={p.id}>
          {p.id}
        </span>
        <span class="spring" />
        <button
          type="button"
          class="button square"
          aria-label="Newer decision"
          title="Newer (k)"
          onClick={() => act.stepRow(-1)}
        >
          <Icon name="up" />
        </button>
        <button
          type="button"
          class="button square"
          aria-label="Older decision"
          title="Older (j)"
          onClick={() => act.stepRow(1)}
        >
          <Icon name="down" />
        </button>
        <button type="button" class="button square" aria-label="Close" title="Close (Esc)" onClick={act.closeDrawer}>
          <Icon name="close" />
        </button>
      </div>
      <div class="drawer-body">
        <Body />
      </div>
    </aside>
  );
}

export function Drawer() {
  const id = view.selected.value;
  if (id === "") return null;
  return <Open id={id} />;
}
