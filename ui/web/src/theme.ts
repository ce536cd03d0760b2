// The colours of the stylesheet, as the canvases need them.

export interface Ink {
  text: string;
  muted: string;
  faint: string;
  grid: string;
  line: string;
  surface: string;
  admit: string;
  defer: string;
  reject: string;
  error: string;
  s1: string;
  s2: string;
  s3: string;
  s4: string;
  limit: string;
  font: string;
}

const NAMES: Record<keyof Ink, string> = {
  text: "--text",
  muted: "--muted",
  faint: "--faint",
  grid: "--grid",
  line: "--line",
  surface: "--surface",
  admit: "--admit",
  defer: "--defer",
  reject: "--reject",
  error: "--error",
  s1: "--s1",
  s2: "--s2",
  s3: "--s3",
  s4: "--s4",
  limit: "--limit",
  font: "--chart-font",
};

let ink: Ink | null = null;
let generation = 0;

function forget(): void {
  ink = null;
  generation++;
}

export function watchTheme(changed: () => void): void {
  const again = () => {
    forget();
    changed();
  };
  new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  matchMedia("(forced-colors: active)").addEventListener("change", again);
}

/** Grows when the colours have changed, so that charts know to build anew. */
export function themeGeneration(): number {
  return generation;
}

export function inks(): Ink {
  if (ink) return ink;
  const style = getComputedStyle(document.documentElement);
  ink = Object.fromEntries(
    Object.entries(NAMES).map(([key, name]) => [key, style.getPropertyValue(name).trim()]),
  ) as unknown as Ink;
  return ink;
}

/** The colour made see-through, as canvases take it. Hex colours only; system colours are left as they are. */
export function alpha(color: string, a: number): string {
  const m = /^#([0-9a-f]{6})$/i.exec(color);
  if (!m?.[1]) return color;
  const n = Number.parseInt(m[1], 16);
  return `rgba(${n >> 16}, ${(n >> 8) & 255}, ${n & 255}, ${a})`;
}
