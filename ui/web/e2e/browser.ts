// Debian's Chromium, driven by playwright-core, and the small helpers that every browser test uses.
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";

export const SHOTS = join(process.cwd(), "shots");
/** Overall limit of one wait; generous, because the machine may be busy. */
export const PATIENCE = 30_000;

export async function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

export interface Opened {
  page: Page;
  context: BrowserContext;
  /** Errors of the page: exceptions, console errors, policy violations. */
  errors: string[];
}

export interface OpenOptions {
  width?: number;
  height?: number;
  dark?: boolean;
  reducedMotion?: boolean;
  forcedColors?: boolean;
  scale?: number;
}

export async function open(browser: Browser, url: string, o: OpenOptions = {}): Promise<Opened> {
  const context = await browser.newContext({
    viewport: { width: o.width ?? 1440, height: o.height ?? 900 },
    colorScheme: o.dark ? "dark" : "light",
    reducedMotion: o.reducedMotion ? "reduce" : "no-preference",
    forcedColors: o.forcedColors ? "active" : "none",
    deviceScaleFactor: o.scale ?? 1,
    permissions: ["clipboard-read", "clipboard-write"],
  });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const errors: string[] = [];
  page.on("pageerror", (e) => errors.push(String(e)));
  page.on("console", (m) => {
    // A refused websocket or a 401 is part of some scripts; the browser logs it by itself.
    if (m.type() === "error" && !/WebSocket connection|Failed to load resource/.test(m.text())) errors.push(m.text());
  });
  await page.goto(url);
  return { page, context, errors };
}

export async function shot(page: Page, name: string): Promise<void> {
  mkdirSync(SHOTS, { recursive: true });
  await page.screenshot({ path: join(SHOTS, `${name}.png`) });
}

/** The text of the connection chip. */
export async function chip(page: Page): Promise<string> {
  return (await page.locator("#link").innerText()).replace(/\s+/g, " ").trim();
}

export async function waitChip(page: Page, word: string): Promise<void> {
  await page.waitForFunction((w) => document.querySelector("#link b")?.textContent === w, word, { timeout: PATIENCE });
}

export interface Violation {
  id: string;
  impact: string;
  help: string;
  nodes: string[];
}

const AXE = readFileSync(join(process.cwd(), "node_modules", "axe-core", "axe.min.js"), "utf8");

/** Serious and critical findings of axe-core. It is run in the page's own world past the page's CSP. */
export async function axe(page: Page): Promise<Violation[]> {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const run = (globalThis as unknown as { axe: { run(o: unknown): Promise<{ violations: unknown[] }> } }).axe.run;
    const { violations } = await run({ resultTypes: ["violations"] });
    return (
      violations as { id: string; impact: string; help: string; nodes: { html: string; failureSummary: string }[] }[]
    )
      .filter((v) => v.impact === "serious" || v.impact === "critical")
      .map((v) => ({
        id: v.id,
        impact: v.impact,
        help: v.help,
        nodes: v.nodes.map((n) => `${n.html.slice(0, 160)} ${n.failureSummary}`),
      }));
  });
}
