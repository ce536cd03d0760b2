// Shapes that carry meaning without colour, and the few pictures of the page.
import type { Verdict } from "../api";

export function VerdictGlyph(p: { verdict: string; outcome?: string; size?: number }) {
  const size = p.size ?? 12;
  const tone = p.outcome === "missed" ? "error" : p.verdict;
  return (
    <svg class={`glyph ${tone}`} width={size} height={size} viewBox="0 0 12 12" aria-hidden="true" focusable="false">
      {shape(p.verdict as Verdict, p.outcome)}
    </svg>
  );
}

function shape(verdict: Verdict, outcome: string | undefined) {
  if (verdict === "reject") {
    return <path d="M2.5 2.5l7 7M9.5 2.5l-7 7" stroke="currentColor" stroke-width="2" fill="none" />;
  }
  if (verdict === "defer") {
    return (
      <>
        <circle cx="6" cy="6" r="4.5" stroke="currentColor" stroke-width="1.5" fill="none" />
        <path d="M6 1.5a4.5 4.5 0 0 0 0 9z" fill="currentColor" />
      </>
    );
  }
  if (outcome === "running") {
    return <circle cx="6" cy="6" r="4.2" stroke="currentColor" stroke-width="1.6" fill="none" />;
  }
  if (outcome === "missed") {
    return (
      <>
        <circle cx="6" cy="6" r="4.2" stroke="currentColor" stroke-width="1.6" fill="none" />
        <path d="M3 9l6-6" stroke="currentColor" stroke-width="1.6" />
      </>
    );
  }
  return <circle cx="6" cy="6" r="4.6" fill="currentColor" />;
}

const PATHS = {
  pause: "M5 3h2v10H5zM9 3h2v10H9z",
  play: "M5 3l8 5-8 5z",
  close: "M4 4l8 8M12 4l-8 8",
  help: "M6 6a2 2 0 1 1 3 1.7c-.7.5-1 .8-1 1.6M8 11.6v.4",
  light:
    "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  dark: "M12.5 9.6A5 5 0 0 1 6.4 3.5a5 5 0 1 0 6.1 6.1z",
  system: "M2.5 3.5h11v7h-11zM6 13h4M8 10.5V13",
  table: "M2.5 3.5h11v9h-11zM2.5 6.5h11M2.5 9.5h11M6.5 3.5v9",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
} as const;

export function Icon(p: { name: keyof typeof PATHS }) {
  const filled = p.name === "pause" || p.name === "play";
  return (
    <svg class="icon" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path
        d={PATHS[p.name]}
        fill={filled ? "currentColor" : "none"}
        stroke={filled ? "none" : "currentColor"}
        stroke-width="1.5"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}

export function Mark() {
  return (
    <svg class="mark" width="20" height="20" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <path
        d="M6 27V13a10 10 0 0 1 20 0v14"
        fill="none"
        stroke="currentColor"
        stroke-width="3"
        stroke-linecap="round"
      />
      <path
        class="mark-tick"
        d="M11.5 18.5l3.6 3.7 6-7.4"
        fill="none"
        stroke-width="3.4"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}
