// Chart heads: what each line is, and its value at the cursor or now.
import { useEffect, useRef } from "preact/hooks";
import { VERDICTS, type Verdict } from "../api";
import { store, viewEnd } from "../app";
import { bucketDecisions } from "../core/buckets";
import { count, withUnit } from "../core/format";
import { windowName } from "../core/url";
import { VerdictGlyph } from "../parts/icons";
import { type Ink, inks } from "../theme";
import * as view from "../view";
import type { ChartDef, SeriesDef } from "./defs";

/** Which custom property a series takes its colour from, found by asking the definition itself. */
function inkName(s: SeriesDef): string {
  const names = Object.keys(inks()) as (keyof Ink)[];
  const probe = Object.fromEntries(names.map((n) => [n, n])) as unknown as Ink;
  return s.color(probe);
}

function Swatch(p: { series: SeriesDef }) {
  const s = p.series;
  return (
    <svg class={`swatch ink-${inkName(s)}`} width="14" height="8" viewBox="0 0 14 8" aria-hidden="true">
      {s.fill || s.band ? <rect width="14" height="8" fill="currentColor" opacity="0.22" /> : null}
      <path
        d="M0 4h14"
        stroke="currentColor"
        stroke-width={s.limit ? 1.5 : 2}
        stroke-dasharray={s.limit ? "4 2" : s.dash ? "3 2" : undefined}
      />
    </svg>
  );
}

export function Legend(p: { def: ChartDef }) {
  const ref = useRef<HTMLUListElement>(null);
  useEffect(() => {
    // Numbers that change ten times a second cannot be read; under the cursor they follow at once.
    const show = () => {
      const row = store.rows.rowAt(view.cursor.value ?? viewEnd());
      const items = ref.current?.querySelectorAll("b");
      p.def.series.forEach((s, i) => {
        const item = items?.[i];
        const text = withUnit(row < 0 ? Number.NaN : s.read(store)(row), s.unit);
        if (item && item.textContent !== text) item.textContent = text;
      });
    };
    const stops = [view.slowTick.subscribe(show), view.cursor.subscribe(show), view.at.subscribe(show)];
    return () => {
      for (const stop of stops) stop();
    };
  }, [p.def]);
  return (
    <ul class="legend" ref={ref}>
      {p.def.series.map((s) => (
        <li key={s.id} class={s.limit ? "is-limit" : s.dash ? "minor" : ""} title={s.doc}>
          <Swatch series={s} />
          <span>{s.label}</span>
          <b>–</b>
        </li>
      ))}
    </ul>
  );
}

const WORD: Record<Verdict, string> = { admit: "admit", defer: "defer", reject: "reject" };

export function LaneLegend() {
  view.slowTick.value;
  const end = viewEnd();
  const t = view.cursor.value;
  const reach = view.windowMs.value / 60;
  const [from, to] = t === null ? [end - view.windowMs.value, end] : [t - reach / 2, t + reach / 2];
  const total = { admit: 0, defer: 0, reject: 0 };
  if (Number.isFinite(end)) {
    for (const b of bucketDecisions(store, from, to, Math.max(1000, to - from)).list) {
      total.admit += b.admit;
      total.defer += b.defer;
      total.reject += b.reject;
    }
  }
  return (
    <ul class="legend">
      {VERDICTS.map((v) => (
        <li key={v}>
          <VerdictGlyph verdict={v} size={11} />
          <span>{WORD[v]}</span>
          <b>{count(total[v])}</b>
        </li>
      ))}
      <li class="sub minor">{t === null ? `in ${windowName(view.windowMs.value)}` : "at the cursor"}</li>
      <li class="fates" title="fill of an admitted mark">
        <VerdictGlyph verdict="admit" outcome="met" size={10} /> met
        <VerdictGlyph verdict="admit" outcome="running" size={10} /> running
        <VerdictGlyph verdict="admit" outcome="missed" size={10} /> missed
      </li>
    </ul>
  );
}
