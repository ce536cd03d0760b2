// The engine's log tail. Every line goes in as a text node.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { poolPath } from "../actions";
import type { EngineLogs } from "../api";
import { clock, count, utc } from "../core/format";
import { chooseLines, keepLines, LEVELS, type LevelChoice, LOG_SHOW, type Shown } from "../core/loglines";
import { rest } from "../rest";

const POLL_MS = 1000;
const lines = signal<Shown[]>([]);
const lost = signal(false);
const follow = signal(true);
const wrap = signal(true);
const words = signal("");
const level = signal<LevelChoice>("all");

function useTail(): void {
  useEffect(() => {
    let stopped = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async () => {
      const after = lines.value.at(-1)?.seq ?? 0;
      const path = after > 0 ? `/api/v1/engine/logs?after=${after}` : "/api/v1/engine/logs?limit=1000";
      const reply = await rest<EngineLogs>("GET", poolPath(path), { quiet: true });
      if (stopped) return;
      if (reply.ok) {
        lines.value = keepLines(lines.value, reply.body.lines ?? []);
        lost.value ||= after > 0 && reply.body.lost;
      }
      timer = setTimeout(() => void load(), POLL_MS);
    };
    void load();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, []);
}

function Controls() {
  return (
    <div class="row log-controls">
      <input
        type="search"
        aria-label="Filter the log"
        placeholder="Filter"
        value={words.value}
        onInput={(e) => {
          words.value = e.currentTarget.value;
        }}
      />
      <select
        aria-label="Lowest level"
        value={level.value}
        onChange={(e) => {
          level.value = e.currentTarget.value as LevelChoice;
        }}
      >
        {LEVELS.map((l) => (
          <option key={l} value={l}>
            {l === "all" ? "all levels" : l === "error" ? "errors" : `${l} and above`}
          </option>
        ))}
      </select>
      <label class="check">
        <input
          type="checkbox"
          checked={wrap.value}
          onChange={(e) => {
            wrap.value = e.currentTarget.checked;
          }}
        />
        Wrap
      </label>
      <label class="check">
        <input
          type="checkbox"
          checked={follow.value}
          onChange={(e) => {
            follow.value = e.currentTarget.checked;
          }}
        />
        Follow
      </label>
    </div>
  );
}

export function Log() {
  useTail();
  const box = useRef<HTMLDivElement>(null);
  const shown = chooseLines(lines.value, words.value, level.value);
  const last = shown.at(-1)?.seq ?? 0;
  useEffect(() => {
    const el = box.current;
    if (el && follow.value) el.scrollTop = el.scrollHeight;
  }, [last, follow.value, wrap.value]);
  return (
    <section class="card log-card" aria-label="Engine log">
      <div class="log-head">
        <h3>
          Log{" "}
          <span class="muted">
            {count(lines.value.length)} lines kept{lost.value ? ", some were lost" : ""}
          </span>
        </h3>
        <Controls />
      </div>
      <div
        class={wrap.value ? "log wrap" : "log"}
        ref={box}
        role="log"
        aria-live="off"
        aria-label={`Engine output, last ${LOG_SHOW} lines at most`}
        tabIndex={0}
        onWheel={(e) => {
          if (e.deltaY < 0) follow.value = false;
        }}
      >
        {shown.length === 0 ? (
          <p class="muted pad">{lines.value.length === 0 ? "The engine has said nothing yet." : "No line matches."}</p>
        ) : null}
        {shown.map((l) => (
          <div key={l.seq} class={`log-line ${l.level}`}>
            <time title={utc(Date.parse(l.at))}>{clock(Date.parse(l.at), false)}</time>
            <span>{l.text}</span>
          </div>
        ))}
      </div>
    </section>
  );
}
