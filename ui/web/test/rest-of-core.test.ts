import assert from "node:assert/strict";
import { test } from "node:test";
import { niceCeil, timeTicks } from "../src/charts/geometry";
import { plotRows } from "../src/core/decimate";
import { chooseLines, keepLines, LOG_KEEP, LOG_SHOW, levelOf } from "../src/core/loglines";
import { RowRing } from "../src/core/ring";
import { lineDiff, settingChanges, settings } from "../src/core/textdiff";
import { readUrl, writeUrl } from "../src/core/url";

test("R9 at most two points a pixel, and no peak is lost", () => {
  const ring = new RowRing(9000, 1);
  for (let i = 0; i < 9000; i++) ring.push(i * 100, [i === 4321 ? 99 : i % 7]);
  const [x, y] = plotRows(ring, 0, 9000, 700, [(abs) => ring.cell(abs, 0)]);
  assert.ok(x.length <= 1402, `${x.length} points`);
  assert.ok(y?.includes(99));
  assert.ok(y?.includes(0));
  assert.deepEqual(
    [...x].sort((a, b) => a - b),
    x,
    "x rises",
  );
});

test("R9 a gap survives the thinning", () => {
  const ring = new RowRing(9000, 1);
  for (let i = 0; i < 9000; i++) ring.push(i * 100, [i > 3000 && i < 3100 ? null : 1]);
  const [, y] = plotRows(ring, 0, 9000, 300, [(abs) => ring.cell(abs, 0)]);
  assert.ok((y ?? []).filter((v) => v === null).length >= 2);
});

test("R15 a link carries the whole state, defaults carry nothing", () => {
  const text = "?tab=policy&w=5m&q=decision%3Areject+tenant%3Aacme&id=01k&at=1700000000000&theme=dark&table=1&pool=m";
  assert.equal(writeUrl(readUrl(text)), text);
  assert.equal(writeUrl(readUrl("")), "");
  const odd = readUrl("?tab=nope&w=7h&at=abc&theme=pink");
  assert.deepEqual([odd.tab, odd.windowMs, odd.at, odd.theme], ["live", 120_000, null, "system"]);
});

test("axis: ticks are round and far enough apart, ceilings are nice", () => {
  const span = { start: 1_700_000_003_000, end: 1_700_000_123_000 };
  const ticks = timeTicks(span, 800);
  assert.ok(ticks.length >= 3 && ticks.length <= 9);
  for (const t of ticks) assert.equal(t % 5000, 0);
  assert.deepEqual([0, 4, 7, 23, 101].map(niceCeil), [1, 4, 8, 30, 150]);
});

test("policy diff: lines and settings", () => {
  const before = "policy: dual-gate\nparams:\n  max_waiting: 4 # few\n  max_kv_used: 0.9\n";
  const after = `${before.replace("0.9", "0.95").replace("  max_waiting: 4 # few\n", "")}on_stale: refuse\n`;
  assert.deepEqual(settingChanges(before, after), [
    { path: "params.max_waiting", before: "4", after: null },
    { path: "params.max_kv_used", before: "0.9", after: "0.95" },
    { path: "on_stale", before: null, after: "refuse" },
  ]);
  const kinds = lineDiff(before, after).map((l) => l.kind);
  assert.equal(kinds.filter((k) => k === "drop").length, 2);
  assert.equal(kinds.filter((k) => k === "add").length, 2);
  assert.deepEqual(lineDiff(before, before), []);
  assert.equal(settings("a:\n  b:\n    c: 1\n  d: 2\ne: 3").get("a.b.c"), "1");
});

test("log: bounded, levels read, filtered", () => {
  const lines = Array.from({ length: 3000 }, (_, i) => ({
    seq: i + 1,
    at: "",
    text: i % 10 === 0 ? `ERROR ${i}` : `INFO ${i}`,
  }));
  const kept = keepLines([], lines);
  assert.equal(kept.length, LOG_KEEP);
  assert.equal(keepLines(kept, lines), kept, "lines that are known are not added again");
  assert.equal(chooseLines(kept, "", "all").length, LOG_SHOW);
  assert.equal(chooseLines(kept, "", "error").length, 200);
  assert.equal(chooseLines(kept, "error 2990", "all").length, 1);
  assert.equal(levelOf("torch.OutOfMemoryError: CUDA out of memory"), "");
  assert.equal(levelOf("RuntimeError: bad"), "error");
  assert.equal(levelOf("[WARNING] x"), "warn");
});
