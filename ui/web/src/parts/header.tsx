// The top line: name, tabs, connection, and the controls that are always at hand.
import * as act from "../actions";
import { heardAt, restartStream, store } from "../app";
import { age, count, duration } from "../core/format";
import { TABS, type Tab } from "../core/url";
import * as view from "../view";
import { Icon, Mark } from "./icons";

/** The server sends a frame at least once a second. */
const STALE_MS = 3000;

export function heardAgo(): number {
  return heardAt === 0 ? Number.NaN : performance.now() - heardAt;
}

export interface ChipState {
  tone: "good" | "calm" | "warn" | "bad";
  word: string;
  detail: string;
}

export function chipState(): ChipState {
  const link = view.link.value;
  switch (link.state) {
    case "unauthorised":
      return { tone: "bad", word: "no access", detail: "" };
    case "connecting":
      return { tone: "warn", word: "connecting", detail: "" };
    case "reconnecting":
      return {
        tone: "bad",
        word: "reconnecting",
        detail: `in ${Math.max(0, Math.ceil((link.at - performance.now()) / 1000))}\u202fs`,
      };
    default:
  }
  if (heardAgo() > STALE_MS) return { tone: "warn", word: "stale", detail: age(heardAgo()) };
  const at = view.at.value;
  if (at !== null) return { tone: "calm", word: "paused", detail: `−${age(Math.max(0, store.lastT - at))}` };
  if (link.state === "polling") return { tone: "warn", word: "polling", detail: "1\u202f/s" };
  return { tone: "good", word: "live", detail: "" };
}

function Chip() {
  view.slowTick.value;
  const chip = chipState();
  const link = view.link.value;
  const title = link.state === "reconnecting" ? link.why : store.bye !== "" ? store.bye : "connection to admitd";
  return (
    <span class={`chip ${chip.tone}`} id="link" title={title}>
      <span class={`dot ${chip.tone}`} aria-hidden="true" />
      <b>{chip.word}</b>
      {chip.detail === "" ? null : <span class="chip-detail">{chip.detail}</span>}
    </span>
  );
}

function Dropped() {
  view.slowTick.value;
  if (store.dropped === 0) return null;
  return (
    <span class="dropped" title="Frames that this viewer was too slow for or that were lost on the way">
      {count(store.dropped)} dropped
    </span>
  );
}

const TAB_NAMES: Record<Tab, string> = { live: "Live", policy: "Policy", engine: "Engine" };

function Tabs() {
  return (
    <nav class="tabs" aria-label="Screens">
      {TABS.map((t) => (
        <button
          type="button"
          key={t}
          class="tab"
          aria-current={view.tab.value === t ? "page" : undefined}
          onClick={() => act.showTab(t)}
        >
          {TAB_NAMES[t]}
        </button>
      ))}
    </nav>
  );
}

function PauseButton() {
  view.slowTick.value;
  const paused = view.paused.value;
  const since = paused ? store.decisions.total - view.pausedTotal.value : 0;
  return (
    <button
      type="button"
      class={paused ? "button pause on" : "button pause"}
      aria-pressed={paused}
      title={paused ? "Go on live (Space, L)" : "Pause the view (Space)"}
      onClick={act.togglePause}
    >
      <Icon name={paused ? "play" : "pause"} />
      <span class="pause-word">{paused ? "Live" : "Pause"}</span>
      {since > 0 ? <span class="badge">+{count(since)}</span> : null}
    </button>
  );
}

function PoolPicker() {
  view.slowTick.value;
  const pools = store.hello?.pools ?? [];
  if (pools.length < 2) return null;
  return (
    <select
      class="pool"
      aria-label="Model"
      value={store.hello?.pool}
      onChange={(e) => {
        view.pool.value = e.currentTarget.value;
        restartStream();
      }}
    >
      {pools.map((p) => (
        <option key={p}>{p}</option>
      ))}
    </select>
  );
}

function Simulated() {
  view.slowTick.value;
  if (!store.simulated) return null;
  return (
    <strong class="simulated" title="The engine is admitd's own simulator: no model answers, no GPU is used">
      SIMULATED
    </strong>
  );
}

export function Header() {
  const theme = view.theme.value;
  return (
    <header class="header">
      <a class="brand" href="/" aria-label="admitd, live view">
        <Mark />
        <span>admitd</span>
      </a>
      <Tabs />
      <PoolPicker />
      <Simulated />
      <span class="spring" />
      <Dropped />
      <Chip />
      <PauseButton />
      <div class="controls">
        <button
          type="button"
          class="button square"
          aria-pressed={view.table.value}
          aria-label="Charts as a table"
          title="Charts as a table (T)"
          onClick={() => {
            view.table.value = !view.table.value;
          }}
        >
          <Icon name="table" />
        </button>
        <button
          type="button"
          class="button square"
          aria-label={`Theme: ${theme}`}
          title={`Theme: ${theme} (d)`}
          onClick={act.cycleTheme}
        >
          <Icon name={theme} />
        </button>
        <button
          type="button"
          class="button square"
          aria-label="Keys and help"
          title="Keys and help (?)"
          onClick={() => {
            view.help.value = true;
          }}
        >
          <Icon name="help" />
        </button>
      </div>
    </header>
  );
}

export function heardText(): string {
  const ago = heardAgo();
  return Number.isNaN(ago) ? "nothing heard yet" : `last heard ${duration(ago)} ago`;
}
