// The policy draft and what is known about it. It outlives a change of screen, not a reload of the page.
import { computed, signal } from "@preact/signals";
import { poolPath } from "../actions";
import type { DryRun, Place, PolicyDocument, PolicyRevision, Problem, ReloadResult } from "../api";
import { refreshStatus } from "../app";
import { rest } from "../rest";

export const running = signal<PolicyDocument | null>(null);
export const history = signal<PolicyRevision[]>([]);
export const draft = signal<string | null>(null);
export const note = signal("");
export const busy = signal("");
export const problem = signal<Problem | null>(null);
/** The dry run and the very text that it was made with. */
export const tried = signal<{ text: string; result: DryRun } | null>(null);
/** The last change made from here, for the line that offers to take it back. */
export const applied = signal<{ at: number; from: string; result: ReloadResult } | null>(null);
let etag = "";

export const text = computed(() => draft.value ?? running.value?.text ?? "");
export const changed = computed(() => running.value !== null && text.value !== running.value.text);
export const dryRun = computed(() => (tried.value?.text === text.value ? tried.value.result : null));
export const places = computed<Place[]>(() => problem.value?.errors ?? []);

export async function load(): Promise<void> {
  const [document, past] = await Promise.all([
    rest<PolicyDocument>("GET", poolPath("/api/v1/policy")),
    rest<{ revisions: PolicyRevision[] | null }>("GET", poolPath("/api/v1/policy/history")),
  ]);
  if (document.ok) {
    running.value = document.body;
    etag = document.etag || `"${document.body.rev}"`;
  } else problem.value = document.problem;
  if (past.ok) history.value = past.body.revisions ?? [];
}

export function edit(value: string): void {
  draft.value = value;
  problem.value = null;
}

export function discard(): void {
  draft.value = null;
  problem.value = null;
  tried.value = null;
}

async function during(what: string, run: () => Promise<void>): Promise<void> {
  if (busy.value !== "") return;
  busy.value = what;
  try {
    await run();
  } finally {
    busy.value = "";
  }
}

/** Validates the draft and judges the recorded window with it. */
export function check(): Promise<void> {
  return during("check", async () => {
    const tryText = text.value;
    problem.value = null;
    const reply = await rest<DryRun>("POST", poolPath("/api/v1/policy/dry-run"), { body: { text: tryText } });
    if (reply.ok) tried.value = { text: tryText, result: reply.body };
    else problem.value = reply.problem;
  });
}

export function apply(): Promise<void> {
  return during("apply", async () => {
    problem.value = null;
    const from = running.value?.rev ?? "";
    const body = note.value === "" ? { text: text.value } : { text: text.value, note: note.value };
    const reply = await rest<ReloadResult>("PUT", poolPath("/api/v1/policy"), { body, ifMatch: etag });
    await settle(reply, from);
  });
}

export function revert(rev: string): Promise<void> {
  return during("revert", async () => {
    problem.value = null;
    const from = running.value?.rev ?? "";
    await settle(await rest<ReloadResult>("POST", poolPath("/api/v1/policy/revert"), { body: { rev } }), from);
  });
}

async function settle(
  reply: { ok: true; body: ReloadResult } | { ok: false; problem: Problem },
  from: string,
): Promise<void> {
  if (!reply.ok) {
    problem.value = reply.problem;
    return;
  }
  applied.value = { at: Date.now(), from, result: reply.body };
  discard();
  note.value = "";
  await load();
  void refreshStatus();
}

/** Takes what runs now as the new base and keeps the draft, after a 412. */
export async function rebase(): Promise<void> {
  problem.value = null;
  draft.value = text.value;
  await load();
}
