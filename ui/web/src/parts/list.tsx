// The decision list: newest first, fixed rows, never more than 60 of them in the page.
import { useEffect, useRef, useState } from "preact/hooks";
import * as act from "../actions";
import { list, markDirty, store } from "../app";
import { parseFilter } from "../core/filter";
import { clock, count, duration, percent, si, utc } from "../core/format";
import { DecisionView, visibleRows } from "../core/list";
import * as view from "../view";
import { VerdictGlyph } from "./icons";

const ROW = 28;
const CARD = 56;
const narrow = matchMedia("(max-width: 767px)");

function Outcome(p: { d: DecisionView }) {
  const d = p.d;
  if (d.outcome === "none") {
    return Number.isFinite(d.retryAfter) && d.retryAfter > 0 ? (
      <span class="muted">retry in {duration(d.retryAfter)}</span>
    ) : (
      <span class="muted">do not retry</span>
    );
  }
  if (d.outcome === "running") return <span class="muted">running</span>;
  return (
    <>
      <span class={d.outcome === "missed" ? "missed" : ""}>
        {Number.isFinite(d.ttft) ? duration(d.ttft) : ending(d.ending)}
      </span>
      <span class="muted"> · {duration(d.total)}</span>
    </>
  );
}

export function ending(word: string): string {
  return word.replaceAll("_", " ");
}

function Row(p: { d: DecisionView; top: number; index: number }) {
  const d = p.d;
  const on = view.row.value === d.id;
  const code = Number.isFinite(d.status) && d.status > 0 && d.status !== 200 ? d.status : "";
  return (
    <div
      style={{ transform: `translateY(${p.top}px)` }}
      role="row"
      aria-rowindex={p.index + 2}
      aria-selected={on}
      tabIndex={-1}
      class={`row ${d.verdict} ${on ? "on" : ""}`}
      data-id={d.id}
    >
      <span role="cell" class="c-time" title={utc(d.t)}>
        {clock(d.t)}
      </span>
      <span role="cell" class="c-verdict">
        <VerdictGlyph verdict={d.verdict} outcome={d.outcome} />
        {d.verdict}
        <span class="muted">{code}</span>
      </span>
      <span role="cell" class="c-reason" title={store.reason(d.reason)?.doc}>
        {d.verdict === "admit" ? (d.held > 0 ? `held ${duration(d.held)}` : "") : d.label}
      </span>
      <span role="cell" class="c-tenant" title={`tenant ${d.tenant}, class ${d.cls}`}>
        {d.tenant}
        {d.cls === "" || d.cls === "default" ? "" : <span class="muted"> {d.cls}</span>}
      </span>
      <span role="cell" class="c-session mono">
        {d.session.slice(0, 6)}
        {d.attempt > 0 ? <b class="attempt" title={`retry ${d.attempt}`}>{` ×${d.attempt + 1}`}</b> : null}
      </span>
      <span
        role="cell"
        class="c-tokens"
        title={`estimated prompt and output tokens; ${si(d.reserved)} reserved; KV ${percent(d.kv)} at that moment`}
      >
        {d.prompt === 0 && d.output === 0 ? (
          <span class="muted" title="refused before the body was read">
            –
          </span>
        ) : (
          <>
            {si(d.prompt)}
            <span class="muted">→</span>
            {si(d.output)}
          </>
        )}
      </span>
      <span role="cell" class="c-reserved">
        {d.reserved > 0 ? si(d.reserved) : ""}
      </span>
      <span role="cell" class="c-kv">
        {percent(d.kv, 0)}
      </span>
      <span role="cell" class="c-outcome">
        <Outcome d={d} />
      </span>
    </div>
  );
}

function FilterField() {
  const filter = parseFilter(view.filterText.value);
  return (
    <div class="filter">
      <input
        id="filter"
        type="search"
        aria-label="Filter the decisions"
        aria-describedby="filter-problem"
        aria-invalid={filter.problems.length > 0}
        placeholder="Filter: decision:reject tenant:acme est>4000 !retry"
        autocomplete="off"
        spellcheck={false}
        value={view.filterText.value}
        onInput={(e) => {
          view.filterText.value = e.currentTarget.value;
        }}
        onKeyDown={(e) => {
          if (e.key === "Escape" || e.key === "Enter") e.currentTarget.blur();
        }}
      />
      <span id="filter-problem" class="filter-problem" role="status">
        {filter.problems[0] ?? ""}
      </span>
    </div>
  );
}

function useFilter(): void {
  useEffect(() => {
    const stop = view.filterText.subscribe((text) => list.setFilter(parseFilter(text)));
    const timer = setInterval(() => {
      if (parseFilter(view.filterText.value).usesOutcome) {
        list.rescan();
        markDirty();
      }
    }, 1000);
    return () => {
      stop();
      clearInterval(timer);
    };
  }, []);
}

/** gateURL is where callers send requests: an address without a scheme is plain HTTP. */
function gateURL(address: string | undefined): string {
  if (!address) return "the gate";
  return address.includes(":/") ? address : `http://${address}`;
}

function Empty() {
  view.listTick.value;
  const filtered = view.filterText.value.trim() !== "" && store.decisions.length > 0;
  return (
    <div class="empty">
      <VerdictGlyph verdict="admit" outcome="running" size={20} />
      <b>{filtered ? "No decision matches the filter" : "No decision yet"}</b>
      <span>
        {filtered
          ? `${count(store.decisions.length)} decisions are in the ring.`
          : `Send a request to ${gateURL(store.status?.gate_address)} and it appears here.`}
      </span>
      {filtered ? (
        <button
          type="button"
          class="button"
          onClick={() => {
            view.filterText.value = "";
          }}
        >
          Clear the filter
        </button>
      ) : null}
    </div>
  );
}

export function DecisionList() {
  useFilter();
  view.listTick.value;
  const box = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ top: 0, height: 600 });
  const newest = useRef("");
  const rowHeight = narrow.matches ? CARD : ROW;
  const n = act.shownCount();
  keepPlace(box.current, n, rowHeight, newest);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const observer = new ResizeObserver(() => setSize({ top: el.scrollTop, height: el.clientHeight }));
    observer.observe(el);
    return () => observer.disconnect();
  }, []);
  useRevealed(box, rowHeight, n);
  const { from, to } = visibleRows(box.current?.scrollTop ?? size.top, size.height, rowHeight, n);
  const rows = [];
  // Elements are used again for other decisions: at 200 a second, making new ones would be most of the work.
  for (let i = from; i < to; i++) {
    const d = new DecisionView(store, list.newest(i, n));
    rows.push(<Row key={(n - i) % 64} d={d} index={i} top={i * rowHeight} />);
  }
  return (
    <section class="list" aria-label="Decisions">
      <div class="list-head">
        <h2>Decisions</h2>
        <span class="muted">{count(n)}</span>
        <FilterField />
      </div>
      <div class="table-box">
        <div class="table" role="table" aria-label="Decisions, newest first" aria-rowcount={n + 1}>
          <ListColumns />
          <div
            class="rows"
            ref={box}
            role="rowgroup"
            tabIndex={0}
            aria-label="Rows"
            onScroll={(e) => setSize({ top: e.currentTarget.scrollTop, height: e.currentTarget.clientHeight })}
            onClick={onRowClick}
            onKeyDown={onRowKey}
          >
            <div class="spacer" role="presentation" style={{ height: `${n * rowHeight}px` }} />
            {rows}
          </div>
        </div>
        {n === 0 ? <Empty /> : null}
      </div>
      <div class="sr" role="log" aria-live="off">
        {count(n)} decisions shown
      </div>
    </section>
  );
}

function ListColumns() {
  return (
    <div class="columns" role="row" aria-rowindex={1}>
      {(
        [
          ["time", "Time"],
          ["verdict", "Verdict"],
          ["reason", "Reason"],
          ["tenant", "Tenant"],
          ["session", "Session"],
          ["tokens", "Est. tokens"],
          ["reserved", "Reserved"],
          ["kv", "KV then"],
          ["outcome", "TTFT · total"],
        ] as const
      ).map(([c, word]) => (
        <span key={c} role="columnheader" class={`c-${c}`}>
          {word}
        </span>
      ))}
    </div>
  );
}

/** Rows that come in on top must not push away what is being read further down. The row is known by its id: numbers change. */
function keepPlace(el: HTMLElement | null, n: number, rowHeight: number, newest: { current: string }): void {
  const abs = store.decisions.find(newest.current);
  if (el && el.scrollTop > 0 && abs >= 0) {
    const added = n - list.countBefore(abs + 1);
    if (added > 0) el.scrollTop += added * rowHeight;
  }
  newest.current = store.decisions.id(list.newest(0, n));
}

/** Scrolls to the selected row when it has changed. */
function useRevealed(box: { current: HTMLDivElement | null }, rowHeight: number, n: number): void {
  const id = view.row.value;
  useEffect(() => {
    const el = box.current;
    const i = act.indexOfSelected(n);
    if (!el || i < 0) return;
    const top = i * rowHeight;
    if (top < el.scrollTop) el.scrollTop = top;
    else if (top + rowHeight > el.scrollTop + el.clientHeight) el.scrollTop = top + rowHeight - el.clientHeight;
  }, [id]);
}

function onRowClick(event: MouseEvent): void {
  const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-id]") : null;
  const id = row?.dataset.id ?? "";
  if (id !== "") act.open(id);
}

function onRowKey(event: KeyboardEvent): void {
  if (event.key === "ArrowDown") act.stepRow(1);
  else if (event.key === "ArrowUp") act.stepRow(-1);
  else if (event.key === "Enter") openFocused();
  else return;
  event.preventDefault();
}

function openFocused(): void {
  if (view.row.value === "") act.stepRow(0);
  act.open(view.row.value);
}
