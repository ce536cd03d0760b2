// What the SDKs that callers use make of the gate's answers.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { model, recorder, startAdmitd } from "./admitd.mjs";

let admitd;
before(async () => {
  admitd = await startAdmitd({
    policy: "policy: concurrency\nparams: {max_in_flight: 1}\nhold: {max_wait: 0s, max_requests: 0}\nretry_after: {min: 2s, max: 5s}\n",
    // Mapped to a status that SDKs retry, so that only x-should-retry can stop them.
    config: "refuse_codes: {too_large: 503}\n",
    engineArgs: ["--max-num-seqs", "4", "--max-model-len", "4096"],
  });
});
after(() => admitd.stop());

const openai = (extra = {}) => new OpenAI({ baseURL: `${admitd.gate}/v1`, apiKey: "any", ...extra });
const anthropic = (extra = {}) => new Anthropic({ baseURL: admitd.gate, apiKey: "any", ...extra });
const ask = [{ role: "user", content: "What is the capital of France?" }];

test("OpenAI: chat, streamed and not", async () => {
  const whole = await openai().chat.completions.create({ model, messages: ask, max_tokens: 12 });
  assert.equal(whole.model, model);
  assert.ok(whole.choices[0].message.content.length > 0);
  assert.ok(whole.usage.completion_tokens > 0);
  const stream = await openai().chat.completions.create({ model, messages: ask, max_tokens: 12, stream: true });
  let text = "";
  let last;
  for await (const chunk of stream) {
    assert.ok(chunk.choices.length > 0, "the gate's own usage event must not reach a caller who did not ask");
    text += chunk.choices[0].delta.content ?? "";
    last = chunk;
  }
  assert.ok(text.length > 0);
  assert.ok(last.choices[0].finish_reason);
});

test("OpenAI: usage on the stream when asked for", async () => {
  const stream = await openai().chat.completions.create({ model, messages: ask, max_tokens: 12, stream: true, stream_options: { include_usage: true } });
  let usage;
  for await (const chunk of stream) usage = chunk.usage ?? usage;
  assert.ok(usage.completion_tokens > 0);
});

test("OpenAI: completions, responses, models", async () => {
  const c = await openai().completions.create({ model, prompt: "Once", max_tokens: 8 });
  assert.ok(c.choices[0].text.length > 0);
  const r = await openai().responses.create({ model, input: "Hello", max_output_tokens: 8 });
  assert.equal(r.object, "response");
  const types = [];
  for await (const e of await openai().responses.create({ model, input: "Hello", max_output_tokens: 8, stream: true })) types.push(e.type);
  assert.equal(types.at(-1), "response.completed");
  // A generative engine has no embeddings; its own answer passes.
  await assert.rejects(openai().embeddings.create({ model, input: ["a", "b"] }), OpenAI.NotFoundError);
  const models = await openai().models.list();
  assert.deepEqual(models.data.map((m) => m.id), [model]);
});

test("Anthropic: messages, streamed and not, and token counts", async () => {
  const m = await anthropic().messages.create({ model, max_tokens: 12, messages: ask });
  assert.equal(m.type, "message");
  assert.ok(m.usage.output_tokens > 0);
  const final = await anthropic().messages.stream({ model, max_tokens: 12, messages: ask }).finalMessage();
  assert.ok(final.content[0].text.length > 0);
  assert.ok(final.stop_reason);
  const count = await anthropic().messages.countTokens({ model, messages: ask });
  assert.ok(count.input_tokens > 0);
});

// occupy keeps the one allowed request busy until the returned function is called.
async function occupy() {
  const abort = new AbortController();
  const res = await fetch(`${admitd.gate}/v1/chat/completions`, {
    method: "POST", signal: abort.signal, headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, messages: ask, max_tokens: 3900, stream: true, ignore_eos: true }),
  });
  assert.equal(res.status, 200);
  return () => abort.abort();
}

for (const [name, call] of [
  ["OpenAI", (f) => openai({ fetch: f, maxRetries: 2 }).chat.completions.create({ model, messages: ask, max_tokens: 4 })],
  ["Anthropic", (f) => anthropic({ fetch: f, maxRetries: 2 }).messages.create({ model, messages: ask, max_tokens: 4 })],
]) {
  test(`F24 ${name}: a refused call waits what Retry-After says and then succeeds`, async () => {
    const release = await occupy();
    const { tries, fetch: f } = recorder();
    const done = call(f);
    while (tries.length === 0) await new Promise((r) => setTimeout(r, 20));
    release();
    await done;
    assert.equal(tries[0].status, 503);
    assert.equal(tries[0].headers.get("x-admitd-reason"), "slots_full");
    const after = Number(tries[0].headers.get("retry-after"));
    assert.ok(Number.isInteger(after) && after >= 1 && after <= 60, `Retry-After ${after}`);
    const promised = Number(tries[0].headers.get("retry-after-ms") ?? after * 1000);
    const waited = tries[1].began - tries[0].ended;
    assert.ok(waited >= promised - 50, `waited ${waited} ms of ${promised} ms`);
    assert.equal(tries.at(-1).status, 200);
  });

  test(`F24 ${name}: a hopeless call is not tried again`, async () => {
    const { tries, fetch: f } = recorder();
    const huge = [{ role: "user", content: "word ".repeat(60_000) }];
    const hopeless = name === "OpenAI"
      ? openai({ fetch: f, maxRetries: 2 }).chat.completions.create({ model, messages: huge, max_tokens: 4 })
      : anthropic({ fetch: f, maxRetries: 2 }).messages.create({ model, messages: huge, max_tokens: 4 });
    await assert.rejects(hopeless, (err) => {
      assert.equal(err.status, 503);
      assert.match(err.message, /token/);
      return true;
    });
    assert.equal(tries.length, 1);
    assert.equal(tries[0].headers.get("x-should-retry"), "false");
    assert.equal(tries[0].headers.get("x-admitd-reason"), "too_large");
  });
}

test("errors are the SDKs' own classes", async () => {
  await assert.rejects(openai().chat.completions.create({ model: "nope", messages: ask }), OpenAI.NotFoundError);
  await assert.rejects(anthropic().messages.create({ model: "nope", max_tokens: 4, messages: ask }), Anthropic.NotFoundError);
});
