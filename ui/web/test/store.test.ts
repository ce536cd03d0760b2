import assert from "node:assert/strict";
import { test } from "node:test";
import { bucketDecisions } from "../src/core/buckets";
import { parseFilter } from "../src/core/filter";
import { DecisionView, ListModel, visibleRows } from "../src/core/list";
import { Store } from "../src/core/store";
import { frame, hello, item, snap } from "./messages";

const decision = (id: string, over: Record<string, unknown> = {}) =>
  Object.values({
    id,
    t: 0,
    verdict: 0,
    reason: 0,
    status: 0,
    tenant: 0,
    class: 1,
    session: "ab12",
    attempt: 0,
    prompt: 9,
    ...over,
  }) as (string | number)[];

function started(): Store {
  const store = new Store();
  store.apply(hello());
  store.apply(
    snap(100, {
      history: {
        gauges: null,
        t_ms: [1_009_000, 1_010_000],
        rows: [
          [0.1, 1],
          [0.2, null],
        ],
      },
    }),
  );
  return store;
}

test("R1 another stream version asks for a reload and changes nothing", () => {
  const store = started();
  const version = store.version;
  assert.equal(store.apply({ ...frame(101), v: 2 }), "reload");
  assert.equal(store.version, version);
});

test("R1 hello, snap and frames build gauges by name; unknown is NaN", () => {
  const store = started();
  assert.equal(store.latest("kv_used"), 0.2);
  assert.ok(Number.isNaN(store.latest("running")));
  assert.ok(Number.isNaN(store.latest("no_such_gauge")));
  store.apply(frame(101));
  assert.equal(store.latest("running"), 3);
  assert.equal(store.lastSeq, 101);
});

test("R2 interned strings, verdicts and reasons come out as words", () => {
  const store = started();
  store.apply(
    frame(101, {
      s: ["globex"],
      sb: 2,
      n: [0, 1, 0],
      d: [decision("x", { t: 40, verdict: 1, reason: 1, tenant: 2, status: 503 })],
    }),
  );
  const d = new DecisionView(store, store.decisions.find("x"));
  assert.deepEqual(
    [d.verdict, d.reason, d.label, d.tenant, d.cls, d.session, d.status],
    ["defer", "kv_pressure", "KV cache full", "globex", "default", "ab12", 503],
  );
  assert.equal(d.t, 1_000_000 + 101 * 100 - 40);
});

test("R2 a sampled frame still counts every decision", () => {
  const store = started();
  store.apply(frame(101, { n: [900, 30, 1], sampled: true, d: [decision("x")] }));
  const [bucket] = bucketDecisions(store, 1_010_100, 1_010_100, 100).list;
  assert.deepEqual([bucket?.admit, bucket?.defer, bucket?.reject], [900, 30, 1]);
});

test("decisions that came without a frame are counted one by one", () => {
  const store = new Store();
  store.apply(hello());
  store.apply(
    snap(100, { decisions: [item("b", 1_005_000, { verdict: "defer", reason: "kv_pressure" }), item("a", 1_004_900)] }),
  );
  const b = bucketDecisions(store, 1_004_000, 1_006_000, 10_000).list[0];
  assert.deepEqual([b?.admit, b?.defer], [1, 1]);
  assert.deepEqual(
    [0, 1].map((i) => store.decisions.id(i)),
    ["a", "b"],
  );
});

test("R4 gap: lost frames are counted once, marked, and break the line", () => {
  const store = started();
  store.apply(frame(101));
  store.apply({ v: 1, seq: 105, t: 1_010_500, kind: "gap", from: 102, to: 105 });
  store.apply(frame(106));
  assert.equal(store.dropped, 4);
  const mark = store.marks.find((m) => m.kind === "lost");
  assert.equal(mark?.text, "4 frames lost to this viewer");
  const rows = store.rows;
  assert.ok(Number.isNaN(rows.cell(rows.total - 2, 0)), "an empty row stands between");
});

test("R4 a jump in the numbers without a gap message is a gap too, events count as numbers", () => {
  const store = started();
  store.apply(frame(101));
  store.apply({
    v: 1,
    seq: 102,
    t: 1_010_200,
    kind: "event",
    name: "policy_reload",
    level: "info",
    text: "policy x@2",
  });
  store.apply(frame(103));
  assert.equal(store.dropped, 0);
  store.apply(frame(110));
  assert.equal(store.dropped, 6);
});

test("R4 reorder: a late frame brings its decisions but not its row, twice is once", () => {
  const store = started();
  store.apply(frame(101));
  store.apply(frame(103, { d: [decision("second")] }));
  const rows = store.rows.total;
  const late = frame(102, { d: [decision("first")], o: [["second", 1, 200, 90, 20, 900, 10, 20, 1]] });
  store.apply(late);
  store.apply(late);
  assert.equal(store.rows.total, rows);
  assert.ok(store.decisions.find("first") >= 0);
  assert.equal(store.decisions.total, 2);
  assert.equal(new DecisionView(store, store.decisions.find("second")).outcome, "met");
});

test("R4 a snap that refilled the charts still tells what was lost", () => {
  const store = started();
  store.apply(frame(101));
  store.apply(hello({ seq: 200 }));
  store.apply(snap(200));
  store.apply({ v: 1, seq: 200, t: 1_020_000, kind: "gap", from: 102, to: 200 });
  assert.equal(store.dropped, 99);
  assert.equal(store.lastSeq, 200);
});

test("R5 another boot id: a restart mark, the old history stays, numbers start over", () => {
  const store = started();
  store.apply(frame(101, { d: [decision("old")] }));
  const rows = store.rows.length;
  store.apply(hello({ boot_id: "b", seq: 5, t: 1_020_000, strings: [] }));
  assert.equal(store.lastSeq, 0);
  assert.equal(store.marks.filter((m) => m.kind === "restart").length, 1);
  assert.ok(store.rows.length >= rows);
  store.apply(snap(5));
  store.apply(frame(6, { t: 1_021_000 }));
  assert.equal(store.dropped, 0);
  assert.equal(
    new DecisionView(store, store.decisions.find("old")).tenant,
    "acme",
    "words of the old process stay right",
  );
});

test("gaps in time are gaps in the line", () => {
  const store = started();
  store.apply(frame(101));
  store.apply(frame(102, { t: 1_010_100 + 9000 }));
  const rows = store.rows;
  assert.ok(Number.isNaN(rows.cell(rows.total - 2, 0)));
});

test("policy: a new revision in a frame makes a mark, and the event gives it its words", () => {
  const store = started();
  store.apply(frame(101));
  store.apply(frame(102, { r: "r2" }));
  store.apply({
    v: 1,
    seq: 103,
    t: 1_010_250,
    kind: "event",
    name: "policy_reload",
    level: "info",
    text: "policy dual-gate@r2 by file",
  });
  const marks = store.marks.filter((m) => m.kind === "policy");
  assert.equal(marks.length, 1);
  assert.equal(marks[0]?.text, "policy dual-gate@r2 by file");
});

test("a page opened after an incident has its marks, and one that reconnects has them once", () => {
  const store = started();
  const past = { t: 1_001_000, name: "engine_state", level: "error", text: "engine stalled" };
  const known = store.marks.length;
  store.apply(snap(300, { events: [past] }));
  assert.deepEqual(store.marks[0], { t: 1_001_000, kind: "engine", level: "error", text: "engine stalled" });
  store.apply(snap(400, { events: [past] }));
  assert.equal(store.marks.filter((m) => m.text === "engine stalled").length, 1);
  assert.ok(store.marks.length <= known + 2);
});

test("R8 marks and decisions stay bounded", () => {
  const store = started();
  for (let i = 0; i < 2000; i++) {
    store.apply({
      v: 1,
      seq: 101 + i,
      t: 1_010_000 + i,
      kind: "event",
      name: "engine_state",
      level: "info",
      text: "x",
    });
  }
  assert.ok(store.marks.length <= 400);
});

test("list: newest first, filtered step by step, cut at an instant", () => {
  const store = started();
  const list = new ListModel(store);
  list.setFilter(parseFilter("decision:defer"));
  for (let i = 1; i <= 10; i++) store.apply(frame(100 + i, { d: [decision(`d${i}`, { verdict: i % 2 })] }));
  list.update();
  assert.equal(list.count, 5);
  assert.equal(store.decisions.id(list.newest(0)), "d9");
  const end = store.decisions.lowerBound(1_010_500 + 1);
  assert.equal(list.countBefore(end), 3);
  assert.equal(store.decisions.id(list.newest(0, 3)), "d5");
  assert.equal(list.newest(7), -1);
  list.setFilter(parseFilter(""));
  assert.equal(list.count, 10);
});

test("list: older decisions put in front are judged too", () => {
  const store = started();
  const list = new ListModel(store);
  list.setFilter(parseFilter("tenant:acme"));
  store.apply(frame(101, { d: [decision("now")] }));
  list.update();
  store.backfill([item("older2", 1_005_000), item("older1", 1_004_000)], true);
  list.update();
  assert.deepEqual(
    [0, 1, 2].map((i) => store.decisions.id(list.newest(i))),
    ["now", "older2", "older1"],
  );
  assert.equal(store.knownFrom, 1_004_000);
});

test("a key pressed between two redraws finds its row, also just after older decisions were put in front", () => {
  const store = started();
  const list = new ListModel(store);
  list.setFilter(parseFilter(""));
  store.apply(frame(101, { d: [decision("first")] }));
  list.update();
  store.backfill([item("older2", 1_005_000), item("older1", 1_004_000)], true);
  store.apply(frame(102, { d: [decision("second")] }));
  assert.equal(list.countBefore(store.decisions.find("first")), 2);
  assert.equal(store.decisions.id(list.newest(0)), "second");
  assert.equal(store.decisions.id(list.newest(1)), "first");
  assert.equal(list.count, 4);
});

test("R9 never more than 60 rows, whatever the height", () => {
  for (const height of [100, 700, 5000]) {
    const { from, to } = visibleRows(28 * 500, height, 28, 20_000);
    assert.ok(to - from <= 60 && to > from);
  }
  assert.deepEqual(visibleRows(0, 600, 28, 0), { from: 0, to: 0 });
  assert.deepEqual(visibleRows(28 * 100, 600, 28, 10).to, 10);
});
