// The charts as a table: the same values as words, for those who cannot or would rather not read a picture.
import { store } from "../app";
import { clock, withUnit } from "../core/format";
import * as view from "../view";
import { CHARTS } from "./defs";
import type { Span } from "./geometry";
import { marksIn } from "./marks";

interface Row {
  chart: string;
  label: string;
  doc: string;
  unit: string;
  now: number;
  min: number;
  max: number;
}

function rowsOf(span: Span): Row[] {
  const ring = store.rows;
  const from = ring.lowerBound(span.start);
  const to = ring.lowerBound(span.end + 1);
  const at = ring.rowAt(view.cursor.value ?? span.end);
  return CHARTS.flatMap((def) =>
    def.series.map((s) => {
      const read = s.read(store);
      let min = Number.NaN;
      let max = Number.NaN;
      for (let abs = from; abs < to; abs++) {
        const v = read(abs);
        if (Number.isNaN(v)) continue;
        if (!(v >= min)) min = v;
        if (!(v <= max)) max = v;
      }
      return {
        chart: def.title,
        label: s.label,
        doc: s.doc,
        unit: s.unit,
        now: at < 0 ? Number.NaN : read(at),
        min,
        max,
      };
    }),
  );
}

export function ValueTable(p: { span: Span }) {
  view.slowTick.value;
  const when = view.cursor.value ?? p.span.end;
  return (
    <div class="values">
      <table>
        <caption>Values at {clock(when)} and their range over the window</caption>
        <thead>
          <tr>
            <th scope="col">Chart</th>
            <th scope="col">Quantity</th>
            <th scope="col" class="num">
              Value
            </th>
            <th scope="col" class="num">
              Lowest
            </th>
            <th scope="col" class="num">
              Highest
            </th>
          </tr>
        </thead>
        <tbody>
          {rowsOf(p.span).map((r, i, all) => (
            <tr key={`${r.chart}${r.label}${r.doc}`} title={r.doc} class={all[i - 1]?.chart === r.chart ? "" : "first"}>
              <td>{all[i - 1]?.chart === r.chart ? "" : r.chart}</td>
              <th scope="row">{r.label}</th>
              <td class="num">{withUnit(r.now, r.unit)}</td>
              <td class="num">{withUnit(r.min, r.unit)}</td>
              <td class="num">{withUnit(r.max, r.unit)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <EventTable span={p.span} />
    </div>
  );
}

/** Events of the window, newest first: the lane of the charts in words. */
function EventTable(p: { span: Span }) {
  const marks = marksIn(store, p.span).reverse();
  if (marks.length === 0) return null;
  return (
    <table>
      <caption>Events of the window</caption>
      <tbody>
        {marks.map((m) => (
          <tr key={`${m.t}${m.text}`}>
            <td class="when">{clock(m.t)}</td>
            <td>{m.level}</td>
            <td>{m.text}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
