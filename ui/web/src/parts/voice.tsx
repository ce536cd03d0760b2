// What is said aloud: a summary at most every ten seconds, never one line a decision.
import { useEffect, useRef } from "preact/hooks";
import { store } from "../app";
import { bucketDecisions } from "../core/buckets";
import { percent } from "../core/format";
import * as view from "../view";

export const SUMMARY_MS = 10_000;

export function summary(end: number): string {
  const total = { admit: 0, defer: 0, reject: 0 };
  for (const b of bucketDecisions(store, end - SUMMARY_MS, end, SUMMARY_MS).list) {
    total.admit += b.admit;
    total.defer += b.defer;
    total.reject += b.reject;
  }
  const kv = store.latest("kv_used");
  const kvText = Number.isFinite(kv) ? `, KV ${percent(kv, 0)}` : "";
  return `last 10 s: ${total.admit} admitted, ${total.defer} deferred, ${total.reject} rejected${kvText}`;
}

export function Voice() {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!ref.current || view.paused.value || view.link.value.state !== "live" || !Number.isFinite(store.lastT))
        return;
      ref.current.textContent = summary(store.lastT);
    }, SUMMARY_MS);
    return () => clearInterval(timer);
  }, []);
  return <div class="sr" id="summary" ref={ref} role="status" aria-live="polite" />;
}
