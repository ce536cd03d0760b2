import assert from "node:assert/strict";
import { test } from "node:test";
import { DECISION_COLUMNS, DecisionRing, RowRing } from "../src/core/ring";

test("R8 rows keep their columns in fixed memory and forget the oldest", () => {
  const ring = new RowRing(4, 2);
  const before = ring.bytes;
  for (let i = 0; i < 10; i++) ring.push(i * 10, [i, null]);
  assert.equal(ring.length, 4);
  assert.equal(ring.first, 6);
  assert.equal(ring.cell(6, 0), 6);
  assert.ok(Number.isNaN(ring.cell(5, 0)), "a row that has left is not known");
  assert.ok(Number.isNaN(ring.cell(9, 1)), "null is not known, never 0");
  assert.equal(ring.bytes, before);
  assert.equal(ring.lowerBound(75), 8);
  assert.equal(ring.lowerBound(1000), 10);
  assert.equal(ring.rowAt(89), 8);
  assert.equal(ring.rowAt(1), -1);
});

test("R8 the page's own row ring stays near the budget of one megabyte for 16 series", () => {
  const ring = new RowRing(9000, 16);
  assert.ok(ring.bytes < 1.3e6);
});

test("decisions: bounded index, unique ids, late outcomes find them", () => {
  const ring = new DecisionRing(1000);
  for (let i = 0; i < 20_000; i++) ring.push(i, `id${i}`, "s", { verdict: i % 3 });
  assert.equal(ring.length, 1000);
  assert.equal(ring.indexed, 1000);
  assert.equal(ring.find("id0"), -1);
  assert.equal(ring.amend("id0", { fate: 1 }), false);
  assert.equal(ring.amend("id19999", { fate: 1 }), true);
  assert.equal(ring.get(ring.find("id19999"), "fate"), 1);
  assert.equal(ring.push(5, "id19999", "s", {}), -1);
  assert.equal(ring.total, 20_000);
  assert.equal(ring.id(ring.total - 1), "id19999");
});

test("older decisions go in front, once, and none is lost from the end", () => {
  const now = new DecisionRing(6);
  for (const i of [5, 6, 7]) now.push(i, `d${i}`, "", { verdict: 0 });
  const older = new DecisionRing(6);
  for (const i of [1, 2, 3, 4, 5]) older.push(i, `d${i}`, "", { verdict: 1 });
  const both = now.after(older);
  const ids = Array.from({ length: both.length }, (_, i) => both.id(both.first + i));
  assert.deepEqual(ids, ["d3", "d4", "d5", "d6", "d7"]);
  assert.equal(DECISION_COLUMNS.length, 22);
});
