import assert from "node:assert/strict";
import { test } from "node:test";
import * as f from "../src/core/format";

const flat = (s: string) => s.replaceAll("\u202f", " ");

test("unknown is a dash, zero is zero", () => {
  for (const say of [f.si, f.bytes, f.percent, f.duration, f.age, f.rate, f.count]) {
    assert.equal(say(null), "–");
    assert.equal(say(Number.NaN), "–");
    assert.notEqual(say(0), "–");
  }
});

test("tokens in SI, memory in IEC", () => {
  assert.deepEqual([0, 7, 999, 1000, 1234, 45_678, 999_499, 999_500, 1_234_567, 12e9].map(f.si), [
    "0",
    "7",
    "999",
    "1k",
    "1.23k",
    "45.7k",
    "999k",
    "1M",
    "1.23M",
    "12G",
  ]);
  assert.deepEqual(
    [0, 512, 1536, 85_899_345_920].map((n) => flat(f.bytes(n))),
    ["0 B", "512 B", "1.5 KiB", "80.0 GiB"],
  );
});

test("durations carry over cleanly", () => {
  const cases: [number, string][] = [
    [0, "0 ms"],
    [0.04, "0.04 ms"],
    [7.25, "7.3 ms"],
    [412, "412 ms"],
    [999.6, "1.00 s"],
    [1240, "1.24 s"],
    [9996, "10.0 s"],
    [59_960, "1 m 00 s"],
    [192_000, "3 m 12 s"],
    [3_599_600, "1 h 00 m"],
    [11_520_000, "3 h 12 m"],
    [180_000_000, "2 d 2 h"],
    [-1240, "−1.24 s"],
  ];
  for (const [ms, want] of cases) assert.equal(flat(f.duration(ms)), want);
});

test("units of the API have words", () => {
  assert.equal(f.withUnit(0.973, "fraction"), "97.3%");
  assert.equal(flat(f.withUnit(1.5, "s")), "1.50 s");
  assert.equal(flat(f.withUnit(4100, "tokens/s")), "4.1k tok/s");
  assert.equal(f.withUnit(1, "bool"), "yes");
  assert.equal(flat(f.withUnit(3, "parsecs")), "3 parsecs");
  assert.equal(f.withUnit(null, "bytes"), "–");
});

test("times that Go left unset are none", () => {
  assert.equal(f.instant("0001-01-01T00:00:00Z"), null);
  assert.equal(f.instant(undefined), null);
  assert.equal(f.instant("nonsense"), null);
  assert.equal(f.instant("2026-11-30T00:00:00Z"), Date.UTC(2026, 10, 30));
  assert.equal(f.utc(Date.UTC(2026, 10, 30, 3, 4, 5, 6)), "2026-11-30 03:04:05.006 UTC");
});

test("counts group by thousands", () => {
  assert.equal(flat(f.count(1234567)), "1 234 567");
  assert.equal(f.count(999), "999");
});
