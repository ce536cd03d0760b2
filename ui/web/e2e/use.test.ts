// What a person does: keys, filter, links, scrubbing, the why drawer, policy and engine work.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { chip, launch, type Opened, type OpenOptions, open, PATIENCE, waitChip } from "./browser";
import { Fake, type FakeOptions } from "./fake/server";

let browser: Browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

async function withPage(
  o: { fake?: FakeOptions; page?: OpenOptions; path?: string; set?: (fake: Fake) => void },
  run: (opened: Opened, fake: Fake) => Promise<void>,
): Promise<void> {
  const fake = new Fake({ history: 300, ...o.fake });
  await fake.listen();
  o.set?.(fake);
  const opened = await open(browser, fake.url + (o.path ?? "/"), o.page);
  try {
    await waitChip(opened.page, "live").catch(() => undefined);
    await run(opened, fake);
    assert.deepEqual(opened.errors, []);
  } finally {
    await opened.context.close();
    await fake.close();
  }
}

const limit = { timeout: 4 * PATIENCE };
/** The page's own view of its address; the driver's may lag behind history.replaceState. */
const query = async (page: Page) => new URLSearchParams(await page.evaluate(() => location.search));
const pressed = (page: Page, name: string) =>
  page.locator('.segment[aria-pressed="true"]', { hasText: name }).waitFor();

async function flow(page: Page, fake: Fake, n = 10): Promise<void> {
  for (let i = 0; i < n; i++) fake.tick(100);
  await page.waitForSelector(".list .row");
}

test("R13 keys: tabs, window, theme, table, help, palette", limit, () =>
  withPage({}, async ({ page }, fake) => {
    await flow(page, fake);
    await page.keyboard.press("[");
    await pressed(page, "1m");
    await page.keyboard.press("]");
    await page.keyboard.press("]");
    await pressed(page, "5m");
    await page.keyboard.press("d");
    await page.waitForSelector('html[data-theme="light"]');
    await page.keyboard.press("d");
    await page.waitForSelector('html[data-theme="dark"]');
    await page.keyboard.press("Shift+T");
    await page.waitForSelector(".values table");
    await page.keyboard.press("g");
    await page.keyboard.press("e");
    await page.waitForSelector(".log-line");
    await page.keyboard.press("g");
    await page.keyboard.press("p");
    await page.waitForSelector(".editor");
    await page.keyboard.press("g");
    await page.keyboard.press("l");
    await page.waitForSelector(".list");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys and help" }).waitFor();
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    await page.keyboard.press("Control+k");
    await page.keyboard.type("window 30");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => new URLSearchParams(location.search).get("w") === "30s");
  }),
);

test("R13 single keys are dead in fields and can be turned off", limit, () =>
  withPage({}, async ({ page }, fake) => {
    await flow(page, fake);
    await page.keyboard.press("/");
    await page.waitForFunction(() => document.activeElement?.id === "filter");
    await page.keyboard.type("decision:defer d ");
    assert.equal(await page.locator("html").getAttribute("data-theme"), null);
    assert.equal(await chip(page), "live");
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.getByLabel("Single-key shortcuts").uncheck();
    await page.keyboard.press("Escape");
    await page.keyboard.press("d");
    await page.keyboard.press("Space");
    assert.equal(await page.locator("html").getAttribute("data-theme"), null);
    assert.equal(await chip(page), "live");
  }),
);

test("pause freezes the view, not the intake; live brings it back", limit, () =>
  withPage({}, async ({ page }, fake) => {
    await flow(page, fake);
    await page.keyboard.press("Space");
    await waitChip(page, "paused");
    const first = await page.locator(".list .row").first().getAttribute("data-id");
    await flow(page, fake, 40);
    await page.locator(".badge").waitFor();
    assert.equal(await page.locator(".list .row").first().getAttribute("data-id"), first);
    await page.keyboard.press("Shift+ArrowLeft");
    await page.waitForFunction((id) => document.querySelector(".list .row")?.getAttribute("data-id") !== id, first);
    const at = Number((await query(page)).get("at"));
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction((t) => Number(new URLSearchParams(location.search).get("at")) > t, at);
    await page.keyboard.press("l");
    fake.run();
    await waitChip(page, "live");
    assert.equal((await query(page)).has("at"), false);
  }),
);

test("R13 decisions by key: next reject, row by row, why, and the focus comes back", limit, () =>
  withPage({}, async ({ page }, fake) => {
    await flow(page, fake, 60);
    await page.keyboard.press("N");
    await page.waitForSelector(".list .row.reject.on");
    await waitChip(page, "paused");
    const first = await page.locator(".list .row.on").getAttribute("data-id");
    await page.keyboard.press("N");
    await page.waitForFunction((id) => document.querySelector(".list .row.on")?.getAttribute("data-id") !== id, first);
    await page.keyboard.press("n");
    await page.waitForSelector(`.list .row.on[data-id="${first}"]`);
    await page.locator(".rows").focus();
    await page.keyboard.press("j");
    await page.waitForFunction((id) => document.querySelector(".list .row.on")?.getAttribute("data-id") !== id, first);
    await page.keyboard.press("Enter");
    await page.waitForSelector(".drawer .sentence");
    await page.waitForFunction(() => document.activeElement?.classList.contains("drawer"));
    const before = await page.locator(".drawer .id").textContent();
    await page.keyboard.press("j");
    await page.waitForFunction((id) => document.querySelector(".drawer .id")?.textContent !== id, before);
    await page.keyboard.press("Escape");
    await page.waitForSelector(".drawer", { state: "detached" });
    await page.waitForFunction(() => document.activeElement?.classList.contains("rows"));
  }),
);

test("R11 a focused chart reads its values by arrow key", limit, () =>
  withPage({}, async ({ page }, fake) => {
    await flow(page, fake);
    await page.locator(".chart-kv .plot").focus();
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    await page.locator(".cursor").waitFor();
    await page.waitForFunction(() =>
      [...document.querySelectorAll('.stack-wrap .sr[aria-live="polite"]')].some((e) =>
        /KV cache: promised [\d.]+%, used [\d.]+%/.test(e.textContent ?? ""),
      ),
    );
    assert.equal(await chip(page), "live", "the cursor moves, the view does not");
  }),
);

test("R15 a link brings back tab, window, filter, instant, decision and theme", limit, () =>
  withPage({}, async ({ page, context }, fake) => {
    await flow(page, fake, 30);
    await page.locator("#filter").fill("decision:admit");
    await page.keyboard.press("Escape");
    await page.keyboard.press("]");
    await page.keyboard.press("Space");
    await page.keyboard.press("d");
    await page.locator(".list .row").nth(2).click();
    await page.waitForSelector(".sentence");
    const url = await page.evaluate(() => location.href);
    const other = await context.newPage();
    await other.goto(url);
    await other.waitForSelector(".sentence");
    await waitChip(other, "paused");
    await pressed(other, "5m");
    assert.equal(await other.locator("#filter").inputValue(), "decision:admit");
    assert.equal(await other.locator("html").getAttribute("data-theme"), "light");
    assert.equal(await other.locator(".drawer .id").textContent(), await page.locator(".drawer .id").textContent());
  }),
);

test("filter: what matches is shown, what cannot be read is said", limit, () =>
  withPage({}, async ({ page }, fake) => {
    await flow(page, fake, 60);
    await page.locator("#filter").fill("decision:defer reason:kv !retry");
    await page.waitForFunction(() => {
      const rows = [...document.querySelectorAll(".list .row")];
      return rows.length > 0 && rows.every((r) => r.classList.contains("defer") && !r.querySelector(".attempt"));
    });
    await page.locator("#filter").fill("est>lots");
    await page.getByText("is not a number").waitFor();
  }),
);

test("why: sentence, failing rule, counterfactual, copies", limit, () =>
  withPage({ path: "/?q=reason:kv" }, async ({ page }, fake) => {
    await flow(page, fake, 20);
    await page.locator(".list .row.defer").first().click();
    await page.getByText(/The KV cache would reach .* the limit is 90\.0%/).waitFor();
    assert.equal(await page.locator(".trace .step.fail").count(), 1);
    assert.equal(await page.locator(".trace .step.not_evaluated").count(), 1);
    await page.locator(".counterfactual", { hasText: "fewer tokens" }).waitFor();
    await page.getByRole("button", { name: "Copy explain command" }).click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    const id = await page.locator(".drawer .id").textContent();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `admitd explain ${id}`);
    await page.getByRole("button", { name: "Filter session" }).click();
    await page.waitForFunction(() => /session:/.test(document.querySelector<HTMLInputElement>("#filter")?.value ?? ""));
  }),
);

test("R8 scrolled down, new decisions do not push away what is being read", limit, () =>
  withPage({ fake: { rate: 30 } }, async ({ page }, fake) => {
    await flow(page, fake, 30);
    await page.locator(".rows").evaluate((el) => {
      el.scrollTop = 28 * 40;
    });
    const topRow = () =>
      page.locator(".rows").evaluate((el) => {
        const box = el.getBoundingClientRect();
        const rows = [...el.querySelectorAll<HTMLElement>(".row")];
        return rows.find((r) => Math.abs(r.getBoundingClientRect().top - box.top) < 3)?.dataset.id ?? "";
      });
    await page.waitForFunction(() => document.querySelectorAll(".list .row").length > 20);
    await page.evaluate(() => new Promise((done) => setTimeout(done, 400)));
    const before = await topRow();
    assert.notEqual(before, "");
    for (let i = 0; i < 10; i++) {
      fake.tick(100);
      await page.evaluate(() => new Promise((done) => setTimeout(done, 120)));
    }
    assert.equal(await topRow(), before);
  }),
);

test("policy: errors at their place, dry run, apply, go back", limit, () =>
  withPage({ path: "/?tab=policy" }, async ({ page }, fake) => {
    await page.waitForSelector(".history li");
    const draft = page.getByLabel("Policy draft");
    const apply = page.getByRole("button", { name: "Apply", exact: true });
    assert.equal(await apply.isDisabled(), true);
    await draft.fill(fake.state.policyText.replace("max_kv_used: 0.9", "max_kv: 0.9"));
    await page.getByRole("button", { name: "Check and dry-run" }).click();
    await page.getByText("did you mean max_kv_used?").waitFor();
    assert.equal((await page.locator(".gutter .wrong").textContent())?.trim(), "7");
    await page.locator(".places button").first().click();
    assert.equal(
      await draft.evaluate((el) =>
        (el as HTMLTextAreaElement).value.slice((el as HTMLTextAreaElement).selectionStart).startsWith("max_kv"),
      ),
      true,
    );
    await draft.fill(fake.state.policyText.replace("max_kv_used: 0.9", "max_kv_used: 0.95"));
    await page.locator(".settings", { hasText: "params.max_kv_used" }).waitFor();
    assert.equal(await apply.isDisabled(), true, "not before this very draft was tried");
    await page.getByRole("button", { name: "Check and dry-run" }).click();
    await page.getByText("Open loop").waitFor();
    await page.getByText(/decisions would flip/).waitFor();
    await apply.click();
    await page.getByText(/^Applied /).waitFor();
    assert.match(fake.state.policyText, /0\.95/);
    await page.getByRole("button", { name: /^Go back to/ }).click();
    await page.waitForFunction(() => document.querySelectorAll(".history li").length === 4);
    assert.match(fake.state.policyText, /0\.9\n/);
  }),
);

test("policy: 412 keeps the draft and compares it with what runs now", limit, () =>
  withPage({ path: "/?tab=policy" }, async ({ page }, fake) => {
    await page.waitForSelector(".history li");
    const text = fake.state.policyText.replace("max_waiting: 4", "max_waiting: 6");
    await page.getByLabel("Policy draft").fill(text);
    await page.getByRole("button", { name: "Check and dry-run" }).click();
    await page.getByText("Open loop").waitFor();
    fake.state.policy = { ...fake.state.policy, rev: "0ther0ther00" };
    fake.state.policyText = fake.state.policyText.replace("0.9", "0.8");
    await page.getByRole("button", { name: "Apply", exact: true }).click();
    await page.getByText("The running policy has changed").waitFor();
    await page.getByRole("button", { name: /Keep the draft/ }).click();
    await page.locator(".settings li", { hasText: "params.max_kv_used" }).waitFor();
    assert.equal(await page.getByLabel("Policy draft").inputValue(), text);
    await page.getByRole("button", { name: "Apply", exact: true }).click();
    await page.getByText(/^Applied /).waitFor();
    assert.match(fake.state.policyText, /max_waiting: 6/);
  }),
);

test("engine: log filter and level, restart only after a second yes", limit, () =>
  withPage({ path: "/?tab=engine" }, async ({ page }, fake) => {
    await page.waitForSelector(".log-line");
    await page.getByLabel("Lowest level").selectOption("error");
    await page.waitForFunction(() =>
      [...document.querySelectorAll(".log-line")].every((l) => l.classList.contains("error")),
    );
    await page.getByLabel("Filter the log").fill("nothing like it");
    await page.getByText("No line matches").waitFor();
    const restarts = () => fake.seen.filter((s) => s === "POST /api/v1/engine/restart").length;
    await page.getByRole("button", { name: "Restart…" }).click();
    await page.getByRole("button", { name: "Leave it running" }).click();
    assert.equal(restarts(), 0);
    await page.getByRole("button", { name: "Restart…" }).click();
    await page.getByRole("button", { name: "Restart it" }).click();
    await page.locator(".state-head b", { hasText: "starting" }).waitFor();
    assert.equal(restarts(), 1);
  }),
);

test("R13 R14 targets are at least 24 px high and wide", limit, () =>
  withPage({ page: { width: 390, height: 900 } }, async ({ page }, fake) => {
    await flow(page, fake);
    const small = await page.evaluate(() =>
      [...document.querySelectorAll("button, a[href], input, select, [role=slider]")]
        .map((el) => ({ el, box: el.getBoundingClientRect() }))
        .filter(({ box }) => box.width > 0 && (box.width < 24 || box.height < 24))
        .map(({ el }) => el.outerHTML.slice(0, 120)),
    );
    assert.deepEqual(small, []);
  }),
);
