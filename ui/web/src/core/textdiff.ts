// What changes between two policy texts: lines, and settings.
import { structuredPatch } from "diff";

export interface DiffLine {
  kind: "same" | "add" | "drop" | "skip";
  text: string;
  /** 1-based line number in the old and the new text; 0 where it has none. */
  before: number;
  after: number;
}

/** Unified diff with three lines of context; empty when the texts are the same. */
export function lineDiff(before: string, after: string): DiffLine[] {
  const patch = structuredPatch("running", "draft", before, after, "", "", { context: 3 });
  const out: DiffLine[] = [];
  for (const hunk of patch?.hunks ?? []) {
    let b = hunk.oldStart;
    let a = hunk.newStart;
    if (b > 1 || out.length > 0) out.push({ kind: "skip", text: "", before: 0, after: 0 });
    for (const line of hunk.lines) {
      const text = line.slice(1);
      if (line.startsWith("+")) out.push({ kind: "add", text, before: 0, after: a++ });
      else if (line.startsWith("-")) out.push({ kind: "drop", text, before: b++, after: 0 });
      else if (line.startsWith(" ")) out.push({ kind: "same", text, before: b++, after: a++ });
    }
  }
  return out;
}

/**
 * Scalars of a plain YAML mapping by their path, comments left out. It reads what policies look like (nested
 * mappings of scalars); the server, not this, judges whether a text is valid.
 */
export function settings(text: string): Map<string, string> {
  const out = new Map<string, string>();
  const open: { indent: number; key: string }[] = [];
  for (const raw of text.split("\n")) {
    const line = raw.replace(/(^|\s)#.*$/, "").trimEnd();
    const m = /^(\s*)([\w.-]+):(?:\s+(.*))?$/.exec(line);
    if (!m) continue;
    const indent = m[1]?.length ?? 0;
    while (open.length > 0 && (open.at(-1)?.indent ?? 0) >= indent) open.pop();
    const path = [...open.map((o) => o.key), m[2]].join(".");
    if (m[3]) out.set(path, m[3]);
    else open.push({ indent, key: m[2] ?? "" });
  }
  return out;
}

export interface SettingChange {
  path: string;
  before: string | null;
  after: string | null;
}

export function settingChanges(before: string, after: string): SettingChange[] {
  const a = settings(before);
  const b = settings(after);
  const out: SettingChange[] = [];
  for (const [path, value] of a) {
    const next = b.get(path) ?? null;
    if (next !== value) out.push({ path, before: value, after: next });
  }
  for (const [path, value] of b) if (!a.has(path)) out.push({ path, before: null, after: value });
  return out;
}
