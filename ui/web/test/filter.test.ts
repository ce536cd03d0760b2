import assert from "node:assert/strict";
import { test } from "node:test";
import { type Filterable, parseFilter, parseNumber } from "../src/core/filter";

const base: Filterable = {
  id: "01kabc",
  verdict: "reject",
  reason: "kv_pressure",
  label: "KV cache full",
  tenant: "acme",
  cls: "interactive",
  session: "ab12cd34",
  status: 529,
  attempt: 1,
  prompt: 5000,
  output: 300,
  reserved: 5300,
  retryAfter: 2000,
  held: 0,
  kv: 0.93,
  waiting: 4,
  ttft: Number.NaN,
  tpot: Number.NaN,
  total: Number.NaN,
  ending: "",
  outcome: "none",
};

const cases: [string, boolean][] = [
  ["", true],
  ["decision:reject reason:kv tenant:acme session:ab12 code:529 est>4000", true],
  ["decision:reject reason:kv tenant:acme session:ab12 code:529 est>4000 !retry", false],
  ["decision:defer", false],
  ["decision:defer,reject", true],
  ["!decision:defer", true],
  ["code:5xx", true],
  ["code:4xx", false],
  ["code:52", false],
  ["code>=500", true],
  ["est>5k", false],
  ["est>=5k", true],
  ["kv>90%", true],
  ["kv>0.95", false],
  ["retry_after<=2s", true],
  ["ttft>0", false],
  ["!ttft>0", true],
  ["retry", true],
  ["reject", true],
  ["admit", false],
  ["ACME", true],
  ["nobody", false],
  ['tenant:"ac me"', false],
  ["ending:none", true],
  ["held", false],
];

for (const [text, want] of cases) {
  test(`filter ${text || "(empty)"}`, () => {
    const filter = parseFilter(text);
    assert.deepEqual(filter.problems, []);
    assert.equal(filter.matches(base), want);
  });
}

test("what cannot be understood is said and left out", () => {
  const filter = parseFilter("colour:red speed>9 est>x decision: decision:reject");
  assert.equal(filter.problems.length, 4);
  assert.match(filter.problems[0] ?? "", /colour: no such field/);
  assert.match(filter.problems[2] ?? "", /not a number/);
  assert.equal(filter.matches(base), true);
});

test("filters on outcomes say that they must be judged again", () => {
  assert.equal(parseFilter("missed").usesOutcome, true);
  assert.equal(parseFilter("ttft>1s").usesOutcome, true);
  assert.equal(parseFilter("decision:defer").usesOutcome, false);
});

test("numbers carry units", () => {
  assert.deepEqual(["4k", "1.5M", "90%", "250ms", "2s", "-3"].map(parseNumber), [4000, 1_500_000, 0.9, 250, 2000, -3]);
  assert.ok(Number.isNaN(parseNumber("4 k")));
});
