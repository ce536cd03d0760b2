// The time stack: charts, decision strip, events and scrub bar over one x axis with one cursor.
import { useEffect, useRef } from "preact/hooks";
import * as act from "../actions";
import { liveEnd, markDirty, store, viewEnd } from "../app";
import { clock, duration, percent, utc, withUnit } from "../core/format";
import { WINDOWS, windowName } from "../core/url";
import { inks } from "../theme";
import * as view from "../view";
import { CHARTS, type ChartDef, GPU_MEMORY } from "./defs";
import { fromX, plotWidth, type Span, toX } from "./geometry";
import { drawLanes, pick } from "./lanes";
import { LaneLegend, Legend } from "./legend";
import { drawEvents, drawScrub } from "./lower";
import { SeriesChart } from "./series";
import { ValueTable } from "./table";

const RING_MS = 900_000;

export function viewSpan(): Span {
  const end = viewEnd();
  const safe = Number.isFinite(end) ? end : Date.now();
  return { start: safe - view.windowMs.value, end: safe };
}

export function ringSpan(): Span {
  const end = Number.isFinite(liveEnd()) ? liveEnd() : Date.now();
  return { start: end - RING_MS, end };
}

/** Runs draw at every tick with the size of the box. */
function useDrawn(draw: (width: number, height: number) => void) {
  const ref = useRef<HTMLDivElement>(null);
  const latest = useRef(draw);
  latest.current = draw;
  useEffect(() => {
    const box = ref.current;
    if (!box) return;
    let size = { width: box.clientWidth, height: box.clientHeight };
    const run = () => {
      if (size.width > 0 && size.height > 0) latest.current(size.width, size.height);
    };
    const observer = new ResizeObserver(() => {
      size = { width: box.clientWidth, height: box.clientHeight };
      run();
    });
    observer.observe(box);
    const stop = view.chartTick.subscribe(run);
    return () => {
      observer.disconnect();
      stop();
    };
  }, []);
  return ref;
}

/** Left and right move the cursor of a focused chart by one row, Shift by ten. */
function cursorKeys(event: KeyboardEvent): void {
  if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
  event.preventDefault();
  const direction = (event.key === "ArrowLeft" ? -1 : 1) * (event.shiftKey ? 10 : 1);
  const span = viewSpan();
  const rows = store.rows;
  const from = rows.rowAt(view.cursor.value ?? span.end);
  const t = rows.time(Math.min(rows.total - 1, Math.max(rows.first, from + direction)));
  if (Number.isFinite(t)) view.cursor.value = Math.min(span.end, Math.max(span.start, t));
}

function describe(def: ChartDef): string {
  const row = store.rows.rowAt(view.cursor.value ?? viewEnd());
  const words = def.series
    .filter((s) => !s.limit)
    .map((s) => `${s.label} ${withUnit(row < 0 ? Number.NaN : s.read(store)(row), s.unit)}`);
  return `${def.title}: ${words.join(", ")}`;
}

function Chart(p: { def: ChartDef }) {
  const chart = useRef<SeriesChart | null>(null);
  const box = useDrawn((width, height) => {
    if (!chart.current && box.current) chart.current = new SeriesChart(box.current, p.def, store);
    chart.current?.draw(viewSpan(), width, height);
  });
  useEffect(
    () => () => {
      chart.current?.destroy();
      chart.current = null;
    },
    [],
  );
  return (
    <figure class={`chart chart-${p.def.id}`}>
      <figcaption>
        <h3 title={p.def.doc}>{p.def.title}</h3>
        <Legend def={p.def} />
      </figcaption>
      <div
        class="plot"
        ref={box}
        role="img"
        tabIndex={0}
        aria-label={`${p.def.title}. ${p.def.doc}. Arrow keys read values.`}
        onKeyDown={cursorKeys}
      />
    </figure>
  );
}

function NoGPU() {
  view.slowTick.value;
  const gpu = store.pool?.gpu;
  return (
    <figure class="chart chart-none">
      <figcaption>
        <h3 title={GPU_MEMORY.doc}>GPU memory</h3>
        <p class="none-text">
          <span class="none-mark" aria-hidden="true" />
          <b>{gpu?.state === "unavailable" || !gpu ? "No GPU on this machine" : `GPU ${gpu.state}`}</b>
          <span>{gpu?.why ?? "nothing is known yet"}</span>
        </p>
      </figcaption>
    </figure>
  );
}

function Lanes() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useDrawn((width, height) => {
    if (!canvas.current) return;
    drawLanes(canvas.current, {
      store,
      span: viewSpan(),
      width,
      height,
      ink: inks(),
      focus: store.decisions.find(view.row.value),
      matches: null,
    });
  });
  const onClick = (event: MouseEvent) => {
    const rect = box.current?.getBoundingClientRect();
    if (!rect) return;
    const abs = pick(store, viewSpan(), rect.width, rect.height, event.clientX - rect.left, event.clientY - rect.top);
    if (abs >= 0) act.open(store.decisions.id(abs));
  };
  return (
    <figure class="chart chart-lanes">
      <figcaption>
        <h3 title="One lane a verdict. Size: reserved tokens. Full: met its SLO; ring: still running; struck: missed it.">
          Decisions
        </h3>
        <LaneLegend />
      </figcaption>
      <div
        class="plot"
        ref={box}
        role="img"
        tabIndex={0}
        aria-label="Decisions in three lanes: admit, defer, reject. The list beside it tells them one by one."
        onKeyDown={cursorKeys}
        onClick={onClick}
      >
        <canvas ref={canvas} />
      </div>
    </figure>
  );
}

function Events() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useDrawn((width, height) => {
    if (canvas.current) drawEvents(canvas.current, { store, span: viewSpan(), width, height, ink: inks() });
  });
  return (
    <div class="events" ref={box} role="img" aria-label="Events and the time axis">
      <canvas ref={canvas} />
    </div>
  );
}

function Scrub() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useDrawn((width, height) => {
    if (canvas.current) {
      drawScrub(canvas.current, { store, span: viewSpan(), ring: ringSpan(), width, height, ink: inks() });
    }
  });
  const move = (event: PointerEvent) => {
    const rect = box.current?.getBoundingClientRect();
    if (!rect || event.buttons === 0) return;
    const t = fromX(event.clientX - rect.left, ringSpan(), rect.width);
    if (t >= ringSpan().end - 500) act.goLive();
    else act.pause(Math.max(t, store.rows.firstTime));
  };
  view.slowTick.value;
  const ring = ringSpan();
  const end = viewSpan().end;
  return (
    <div
      class="scrub"
      ref={box}
      role="slider"
      tabIndex={0}
      aria-label="Instant on view, in the last 15 minutes"
      aria-valuemin={-RING_MS / 1000}
      aria-valuemax={0}
      aria-valuenow={Math.round((end - ring.end) / 1000)}
      aria-valuetext={view.paused.value ? `${clock(end, false)}, ${duration(ring.end - end)} ago` : "live"}
      onPointerDown={(e) => {
        e.currentTarget.setPointerCapture(e.pointerId);
        move(e);
      }}
      onPointerMove={move}
    >
      <canvas ref={canvas} />
    </div>
  );
}

function Cursor() {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(
    () =>
      view.chartTick.subscribe(() => {
        const line = ref.current;
        const stack = line?.parentElement;
        if (!line || !stack) return;
        const t = view.cursor.value;
        const span = viewSpan();
        const shown = t !== null && t >= span.start && t <= span.end;
        line.hidden = !shown;
        if (!shown || t === null) return;
        line.style.transform = `translateX(${Math.round(toX(t, span, stack.clientWidth))}px)`;
        const label = line.firstElementChild;
        if (label) {
          const reach = (6 * (span.end - span.start)) / stack.clientWidth;
          const near = store.marks.find((m) => t > m.t - reach && t < (m.to ?? m.t) + reach);
          label.textContent = near ? `${clock(t)} · ${near.text}` : clock(t);
          label.setAttribute("title", utc(t));
          label.classList.toggle("left", toX(t, span, stack.clientWidth) > stack.clientWidth / 2);
        }
      }),
    [],
  );
  return (
    <div class="cursor" ref={ref} hidden>
      <span class="cursor-time" />
    </div>
  );
}

function WindowPicker() {
  const span = viewSpan();
  view.slowTick.value;
  return (
    <div class="stack-head">
      <fieldset class="segments" aria-label="Window">
        {WINDOWS.map((w) => (
          <button
            type="button"
            key={w}
            class="segment"
            aria-pressed={view.windowMs.value === w}
            onClick={() => {
              view.windowMs.value = w;
            }}
          >
            {windowName(w)}
          </button>
        ))}
      </fieldset>
      <span class="stack-time" title={utc(span.end)}>
        {view.paused.value ? (
          <>
            frozen at <b>{clock(span.end)}</b>
          </>
        ) : (
          <>
            to <b>{clock(span.end, false)}</b>
          </>
        )}
      </span>
    </div>
  );
}

/** Says the value under the cursor once it rests, for those who cannot see it. */
function CursorVoice() {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    return view.cursor.subscribe((t) => {
      clearTimeout(timer);
      if (t === null || !document.activeElement?.classList.contains("plot")) return;
      timer = setTimeout(() => {
        const id = document.activeElement?.parentElement?.className ?? "";
        const def = CHARTS.find((c) => id.includes(`chart-${c.id}`));
        if (ref.current) ref.current.textContent = `${clock(t)}. ${def ? describe(def) : ""}`;
      }, 350);
    });
  }, []);
  return <div class="sr" ref={ref} aria-live="polite" />;
}

export function Stack() {
  const stack = useRef<HTMLDivElement>(null);
  view.slowTick.value;
  const hasGPU = store.pool?.gpu.state === "ok";
  const follow = (event: PointerEvent) => {
    const rect = stack.current?.getBoundingClientRect();
    if (!rect || event.pointerType === "touch") return;
    const x = event.clientX - rect.left;
    const inside = x >= toX(0, { start: 0, end: 1 }, rect.width) && plotWidth(rect.width) > 0;
    view.cursor.value = inside ? fromX(x, viewSpan(), rect.width) : null;
    markDirty("charts");
  };
  const leave = () => {
    if (!document.activeElement?.classList.contains("plot")) view.cursor.value = null;
  };
  return (
    <section class="stack-wrap" aria-label={`Charts, last ${windowName(view.windowMs.value)}`}>
      <WindowPicker />
      {view.table.value ? (
        <ValueTable span={viewSpan()} />
      ) : (
        <div class={hasGPU ? "stack" : "stack no-gpu"} ref={stack} onPointerMove={follow} onPointerLeave={leave}>
          {CHARTS.map((def) =>
            def === GPU_MEMORY && !hasGPU ? <NoGPU key={def.id} /> : <Chart key={def.id} def={def} />,
          )}
          <Lanes />
          <Events />
          <Cursor />
        </div>
      )}
      <Scrub />
      <CursorVoice />
      <span class="sr">{percent(store.latest("kv_used"))} of the KV cache is in use</span>
    </section>
  );
}
