// A part of the reason catalogue, as hello carries it.
import type { ReasonEntry } from "../../src/api";

export const reasons: ReasonEntry[] = [
  { code: "ok", verdict: "admit", status: 0, label: "admitted", doc: "The request went to the engine." },
  {
    code: "kv_pressure",
    verdict: "defer",
    status: 503,
    retry: "after",
    label: "KV cache full",
    doc: "The engine's KV cache is above the policy's limit; come back when running work has freed blocks.",
  },
  {
    code: "queue_depth",
    verdict: "defer",
    status: 503,
    retry: "after",
    label: "queue too long",
    doc: "As many requests wait inside the engine as the policy allows; come back later.",
  },
  {
    code: "saturated",
    verdict: "reject",
    status: 529,
    retry: "after",
    label: "pool saturated",
    doc: "The pool is saturated and no relief is in sight within a minute; back off for long or go elsewhere.",
  },
  {
    code: "tenant_concurrency",
    verdict: "reject",
    status: 429,
    retry: "after",
    label: "tenant concurrency",
    doc: "This tenant has as many calls in flight as it may; wait for one to end.",
  },
  {
    code: "too_large",
    verdict: "reject",
    status: 413,
    retry: "never",
    label: "too large",
    doc: "The prompt cannot fit the engine's context or KV cache; make it smaller.",
  },
  {
    code: "engine_loading",
    verdict: "defer",
    status: 503,
    retry: "after",
    label: "engine loading",
    doc: "The engine is loading its model; the message names the phase.",
  },
];
