// The keyboard. Single keys are ignored in fields and can be turned off (WCAG 2.1.4).
import * as act from "./actions";
import * as view from "./view";

export interface KeyHelp {
  keys: string;
  text: string;
}

export const KEY_HELP: { group: string; keys: KeyHelp[] }[] = [
  {
    group: "Time",
    keys: [
      { keys: "Space", text: "pause the view, and go on" },
      { keys: "← →", text: "one frame back, forward (Shift: 10 s)" },
      { keys: "L End", text: "back to live" },
      { keys: "[ ]", text: "shorter, longer window (30 s to 15 min)" },
    ],
  },
  {
    group: "Decisions",
    keys: [
      { keys: ". ,", text: "next, previous decision" },
      { keys: "n N", text: "next, previous reject" },
      { keys: "j k", text: "next, previous row" },
      { keys: "Enter", text: "why this decision" },
      { keys: "/", text: "filter" },
      { keys: "Esc", text: "close" },
    ],
  },
  {
    group: "Page",
    keys: [
      { keys: "g l", text: "Live" },
      { keys: "g p", text: "Policy" },
      { keys: "g e", text: "Engine" },
      { keys: "T", text: "charts as a table" },
      { keys: "d", text: "theme: system, light, dark" },
      { keys: "Ctrl K", text: "commands" },
      { keys: "?", text: "this help" },
    ],
  },
];

let afterG = 0;

type Handler = (event: KeyboardEvent) => void;

const SINGLE: Record<string, Handler> = {
  "?": () => {
    view.help.value = !view.help.value;
  },
  "/": () => {
    act.showTab("live");
    setTimeout(() => document.querySelector<HTMLInputElement>("#filter")?.focus(), 0);
  },
  " ": () => act.togglePause(),
  l: () => act.goLive(),
  L: () => act.goLive(),
  End: () => act.goLive(),
  ".": () => act.stepDecision(1),
  ",": () => act.stepDecision(-1),
  n: () => act.stepDecision(1, 2),
  N: () => act.stepDecision(-1, 2),
  j: () => act.stepRow(1),
  k: () => act.stepRow(-1),
  Enter: () => act.open(view.row.value),
  "[": () => act.zoom(-1),
  "]": () => act.zoom(1),
  d: () => act.cycleTheme(),
  t: () => toggleTable(),
  T: () => toggleTable(),
};

function toggleTable(): void {
  view.table.value = !view.table.value;
}

const GO: Record<string, Parameters<typeof act.showTab>[0]> = { l: "live", p: "policy", e: "engine" };

function inField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;
}

function onButton(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("button, a, summary") !== null;
}

function stepOut(): void {
  if (view.help.value) view.help.value = false;
  else if (view.palette.value) view.palette.value = false;
  else if (view.selected.value !== "") act.closeDrawer();
  else if (view.cursor.value !== null) view.cursor.value = null;
}

function arrows(event: KeyboardEvent): boolean {
  if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return false;
  const direction = event.key === "ArrowLeft" ? -1 : 1;
  if (event.shiftKey) act.stepTime(direction * 10_000);
  else act.stepFrames(direction);
  return true;
}

export function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    view.palette.value = !view.palette.value;
    return;
  }
  if (event.key === "Escape" && !inField(event.target)) {
    stepOut();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || inField(event.target)) return;
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  if (!view.singleKeys.value) return;
  if (event.key === " " && onButton(event.target)) return;
  if (arrows(event)) {
    event.preventDefault();
    return;
  }
  single(event);
}

function single(event: KeyboardEvent): void {
  const now = performance.now();
  if (event.key === "g") {
    afterG = now;
    return;
  }
  if (now - afterG < 1500) {
    afterG = 0;
    const tab = GO[event.key];
    if (tab) {
      event.preventDefault();
      act.showTab(tab);
      return;
    }
  }
  const handler = SINGLE[event.key];
  if (!handler || (event.key === "Enter" && onButton(event.target))) return;
  event.preventDefault();
  handler(event);
}
