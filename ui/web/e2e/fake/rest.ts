// The fake server's REST answers.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { DryRun, PolicyDocument, Problem } from "../../src/api";
import type { Fake } from "./server";

async function body(req: IncomingMessage): Promise<Record<string, unknown>> {
  let text = "";
  for await (const chunk of req) text += String(chunk);
  try {
    return JSON.parse(text || "{}") as Record<string, unknown>;
  } catch {
    return {};
  }
}

function send(res: ServerResponse, status: number, value: unknown): void {
  res.statusCode = status;
  res.setHeader("Content-Type", status >= 400 ? "application/problem+json" : "application/json");
  res.end(JSON.stringify(value));
}

function problem(
  res: ServerResponse,
  status: number,
  title: string,
  detail: string,
  more: Partial<Problem> = {},
): void {
  send(res, status, { type: "about:blank", title, status, detail, ...more });
}

/** Errors of a policy text, as the real server tells them: place and words. */
function mistakes(text: string): Problem["errors"] {
  const lines = text.split("\n");
  const out = [];
  for (const [i, line] of lines.entries()) {
    const m = /^\s*(max_kv): /.exec(line);
    if (m)
      out.push({
        line: i + 1,
        column: line.indexOf("max_kv") + 1,
        field: "params.max_kv",
        text: "unknown key max_kv; did you mean max_kv_used?",
      });
    const v = /max_kv_used:\s*([\d.]+)/.exec(line);
    if (v && Number(v[1]) > 1)
      out.push({
        line: i + 1,
        column: line.indexOf(v[1] ?? "") + 1,
        field: "params.max_kv_used",
        text: "must be above 0 and at most 1",
      });
  }
  return out;
}

function rev(text: string): string {
  let h = 2166136261;
  for (const c of text) h = Math.imul(h ^ c.charCodeAt(0), 16777619) >>> 0;
  return h.toString(16).padStart(8, "0").padEnd(12, "0");
}

export async function answer(fake: Fake, req: IncomingMessage, res: ServerResponse, url: URL): Promise<void> {
  const path = url.pathname.replace("/api/v1", "");
  const write = req.method !== "GET";
  if (!fake.authorised(req)) {
    problem(res, 401, "Unauthorised", "Send the admin token as Authorization: Bearer.");
    return;
  }
  const input = write ? await body(req) : {};
  if (path === "/status") send(res, 200, fake.status());
  else if (path === "/frame") frames(fake, res, Number(url.searchParams.get("since") ?? 0));
  else if (path === "/decisions") {
    const limit = Number(url.searchParams.get("limit") ?? 100);
    const after = url.searchParams.get("after");
    const all = fake.world.items;
    const items = after === null ? all.slice(-limit) : all.filter((d) => d.seq > Number(after)).slice(0, limit);
    send(res, 200, { items: [...items].reverse(), next: 0, oldest: all[0]?.seq ?? 0 });
  } else if (path.startsWith("/decisions/")) decision(fake, res, decodeURIComponent(path.slice(11)));
  else if (path.startsWith("/policy")) policy(fake, req, res, path, input);
  else if (path === "/engine/logs") logs(fake, res, url);
  else if (path === "/engine/restart") {
    fake.state.engine = { ...fake.state.engine, state: "starting", text: "The engine is being restarted." };
    send(res, 202, { text: "the engine is being restarted" });
  } else problem(res, 404, "Not found", path);
}

function frames(fake: Fake, res: ServerResponse, since: number): void {
  const opening = fake.opening(since);
  const first = since === 0 || opening[0]?.kind === "snap";
  send(res, 200, { messages: first ? [fake.hello(), ...opening] : opening, next: fake.seq, more: false });
}

function decision(fake: Fake, res: ServerResponse, id: string): void {
  const item = fake.world.items.find((d) => d.decision.id === id);
  if (!item) {
    problem(res, 404, "No such decision", "The ring no longer holds it.");
    return;
  }
  const siblings = fake.world.items
    .filter((d) => d.decision.session === item.decision.session)
    .slice(-6)
    .map((d) => ({
      id: d.decision.id,
      at: d.at,
      verdict: d.decision.verdict,
      reason: d.decision.reason,
      attempt: d.decision.attempt,
    }));
  send(res, 200, { ...item, session_siblings: siblings.length > 1 ? siblings : [] });
}

function logs(fake: Fake, res: ServerResponse, url: URL): void {
  const after = Number(url.searchParams.get("after") ?? 0);
  const lines = fake.state.logs.filter((l) => l.seq > after);
  send(res, 200, { lines, lost: false, next: fake.state.logs.at(-1)?.seq ?? 0 });
}

function policy(
  fake: Fake,
  req: IncomingMessage,
  res: ServerResponse,
  path: string,
  input: Record<string, unknown>,
): void {
  const state = fake.state;
  const text = typeof input.text === "string" ? input.text : "";
  if (path === "/policy/history") send(res, 200, { revisions: state.history });
  else if (path === "/policy/dry-run") dryRun(fake, res, text);
  else if (path === "/policy/revert") {
    const old = state.history.find((h) => h.rev === input.rev);
    if (old) swap(fake, res, old.text, "revert");
    else problem(res, 404, "No such revision", "The history holds no such revision.");
  } else if (req.method === "PUT") {
    const match = String(req.headers["if-match"] ?? "").replaceAll('"', "");
    if (match !== state.policy.rev) {
      problem(res, 412, "The running policy has changed", `You started from ${match}; ${state.policy.rev} runs now.`);
      return;
    }
    const errors = mistakes(text);
    if (errors && errors.length > 0) problem(res, 400, "The policy is not valid", "See the places.", { errors });
    else swap(fake, res, text, "api");
  } else {
    const document: PolicyDocument = {
      ...state.policy,
      text: state.policyText,
      spec: {},
      needs: [
        { signal: "kv_used", why: "compared with max_kv_used", state: "live" },
        { signal: "waiting", why: "compared with max_waiting", state: "live" },
      ],
    };
    res.setHeader("ETag", `"${state.policy.rev}"`);
    send(res, 200, document);
  }
}

function swap(fake: Fake, res: ServerResponse, text: string, source: string): void {
  const state = fake.state;
  const name = /policy:\s*(\S+)/.exec(text)?.[1] ?? "dual-gate";
  state.policyText = text;
  state.policy = { name, rev: rev(text), at: new Date(fake.world.now).toISOString(), source };
  state.history = [{ ...state.policy, text }, ...state.history];
  const kv = /max_kv_used:\s*([\d.]+)/.exec(text)?.[1];
  if (kv) fake.world.maxKV = Number(kv);
  fake.event("policy_reload", "info", `policy ${name}@${state.policy.rev} by ${source}`);
  send(res, 200, {
    changed: true,
    rev: state.policy.rev,
    text: "applied",
    diff: kv ? [`params.max_kv_used 0.9 -> ${kv}`] : [],
  });
}

function dryRun(fake: Fake, res: ServerResponse, text: string): void {
  const errors = mistakes(text);
  if (errors && errors.length > 0) {
    problem(res, 400, "The policy is not valid", "See the places.", { errors });
    return;
  }
  const items = fake.world.items.slice(-1200);
  const flips = items.filter((d) => d.decision.reason === "kv_pressure").slice(0, 20);
  const count = (v: string) => items.filter((d) => d.decision.verdict === v).length;
  const old = { admit: count("admit"), defer: count("defer"), reject: count("reject") };
  const answerBody: DryRun = {
    rev: rev(text),
    window_decisions: items.length,
    from: items[0]?.at ?? null,
    to: items.at(-1)?.at ?? null,
    old,
    new: { admit: old.admit + flips.length, defer: old.defer - flips.length, reject: old.reject },
    flip_count: flips.length,
    flips: flips.map((d) => ({
      id: d.decision.id,
      at: d.at,
      old: d.decision.verdict,
      new: "admit",
      new_reason: "ok",
      message: "KV 93.1% would have been under the limit 95.0%",
    })),
    skipped: 3,
    after_first_flip: 0.82,
    caveat: "Open loop: a flipped decision would have changed what came after it.",
  };
  send(res, 200, answerBody);
}
