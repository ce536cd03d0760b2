// R16: every state is designed; each is shot in both themes, checked by axe and free of page errors.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { axe, launch, open, PATIENCE, shot, waitChip } from "./browser";
import { Fake, type FakeOptions } from "./fake/server";
import { engineFailed, engineLoading } from "./fake/state";

let browser: Browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

interface Scene {
  name: string;
  path?: string;
  options?: FakeOptions;
  width?: number;
  height?: number;
  forcedColors?: boolean;
  set?: (fake: Fake) => void;
  act: (page: Page, fake: Fake) => Promise<void>;
}

const rows = (page: Page) => page.waitForSelector(".list .row");

/** Frames until the page shows that it has them. */
async function flow(page: Page, fake: Fake, n = 12): Promise<void> {
  for (let i = 0; i < n; i++) fake.tick(100);
  await rows(page);
}

const scenes: Scene[] = [
  { name: "live", act: (page, fake) => flow(page, fake) },
  {
    name: "live-30s",
    path: "/?w=30s",
    act: (page, fake) => flow(page, fake, 60),
  },
  {
    name: "live-events",
    path: "/?w=1m",
    act: async (page, fake) => {
      await flow(page, fake, 40);
      fake.event("policy_reload", "info", "policy dual-gate@5d41402a by file");
      await flow(page, fake, 60);
      fake.event("engine_state", "warn", "engine stalled: no token for 12 s");
      await flow(page, fake, 90);
      for (let i = 0; i < 20; i++) fake.next(100);
      await flow(page, fake, 30);
      await page.waitForSelector(".dropped");
    },
  },
  {
    name: "simulated-no-gpu",
    options: { gpu: false },
    set: (fake) => {
      fake.state.simulated = true;
    },
    act: async (page, fake) => {
      await flow(page, fake);
      await page.waitForSelector(".simulated");
      await page.getByText("No GPU on this machine").waitFor();
    },
  },
  {
    name: "empty",
    options: { rate: 0, history: 60 },
    act: async (page, fake) => {
      fake.tick(100);
      await page.getByText("No decision yet").waitFor();
    },
  },
  {
    name: "starting",
    options: { rate: 0, history: 30 },
    set: (fake) => {
      fake.state.engine = engineLoading(Date.now());
    },
    act: async (page, fake) => {
      fake.tick(100);
      await page.getByText("Engine loading").waitFor();
    },
  },
  {
    name: "engine-down",
    set: (fake) => {
      fake.state.engine = engineFailed(Date.now());
    },
    act: async (page, fake) => {
      await flow(page, fake);
      await page.locator(".banner.bad", { hasText: "Engine failed" }).waitFor();
    },
  },
  {
    name: "reload-refused",
    set: (fake) => {
      fake.state.config = {
        last_reload_ok: false,
        last_reload_at: null,
        problem: "/etc/admitd/policy.yaml:6:3: params.max_kv: unknown key max_kv; did you mean max_kv_used?",
      };
    },
    act: async (page, fake) => {
      await flow(page, fake);
      await page.locator(".banner.bad", { hasText: "Reload refused" }).waitFor();
    },
  },
  {
    name: "stale-signals",
    set: (fake) => {
      fake.world.scrapeAge = 4200;
    },
    act: async (page, fake) => {
      await flow(page, fake);
      await page.locator(".age.stale").first().waitFor();
    },
  },
  {
    name: "silent",
    act: async (page, fake) => {
      await flow(page, fake);
      await waitChip(page, "stale");
    },
  },
  {
    name: "disconnected",
    act: async (page, fake) => {
      await flow(page, fake);
      fake.down = true;
      fake.cut();
      await waitChip(page, "reconnecting");
      await page.locator(".live-page.old").waitFor();
    },
  },
  {
    name: "unreachable",
    set: (fake) => {
      fake.apiDown = true;
    },
    act: async (page) => {
      await page.getByText("admitd does not answer").waitFor();
    },
  },
  {
    name: "unauthorised",
    set: (fake) => {
      fake.token = "s3cret";
    },
    act: (page) => page.getByRole("dialog", { name: "Admin token" }).waitFor(),
  },
  {
    name: "polling",
    set: (fake) => {
      fake.blockSocket = true;
    },
    act: async (page) => {
      await waitChip(page, "polling");
      await rows(page);
    },
  },
  {
    name: "paused",
    act: async (page, fake) => {
      await flow(page, fake);
      await page.keyboard.press("Space");
      await page.keyboard.press("Shift+ArrowLeft");
      await flow(page, fake, 30);
      await waitChip(page, "paused");
      await page.locator(".badge").waitFor();
    },
  },
  {
    name: "filtered-empty",
    path: "/?q=tenant:nobody",
    act: async (page, fake) => {
      fake.tick(100);
      await page.getByText("No decision matches the filter").waitFor();
    },
  },
  {
    name: "filter-problem",
    path: "/?q=colour:red",
    act: async (page, fake) => {
      await flow(page, fake);
      await page.getByText("colour: no such field").waitFor();
    },
  },
  {
    name: "why-defer",
    path: "/?q=reason:kv",
    act: async (page, fake) => {
      await flow(page, fake);
      await page.locator(".list .row.defer").first().click();
      await page.waitForSelector(".trace .fail");
    },
  },
  {
    name: "why-admit",
    path: "/?q=missed",
    act: async (page, fake) => {
      await flow(page, fake);
      await page.locator(".list .row.admit").first().click();
      await page.waitForSelector(".sentence");
    },
  },
  {
    name: "table",
    path: "/?table=1",
    act: async (page, fake) => {
      await flow(page, fake);
      await page.waitForSelector(".values tbody tr");
    },
  },
  {
    name: "help",
    act: async (page, fake) => {
      await flow(page, fake);
      await page.keyboard.press("?");
      await page.getByRole("dialog", { name: "Keys and help" }).waitFor();
    },
  },
  {
    name: "palette",
    act: async (page, fake) => {
      await flow(page, fake);
      await page.keyboard.press("Control+k");
      await page.getByRole("dialog", { name: "Commands" }).waitFor();
    },
  },
  {
    name: "policy",
    path: "/?tab=policy",
    act: async (page) => {
      await page.waitForSelector(".history li");
    },
  },
  {
    name: "engine",
    path: "/?tab=engine",
    act: async (page) => {
      await page.waitForSelector(".log-line");
    },
  },
  {
    name: "engine-loading",
    path: "/?tab=engine",
    set: (fake) => {
      fake.state.engine = engineLoading(Date.now());
    },
    act: async (page) => {
      await page.waitForSelector(".steps .now");
    },
  },
  {
    name: "engine-failed",
    path: "/?tab=engine",
    options: { gpu: false },
    set: (fake) => {
      fake.state.engine = engineFailed(Date.now());
    },
    act: async (page) => {
      await page.getByText("Next start in").first().waitFor();
    },
  },
  { name: "forced-colors", forcedColors: true, act: (page, fake) => flow(page, fake) },
  { name: "tablet", width: 1024, height: 1400, act: (page, fake) => flow(page, fake) },
  { name: "phone", width: 390, height: 2000, act: (page, fake) => flow(page, fake) },
  { name: "narrow-320", width: 320, height: 1800, act: (page, fake) => flow(page, fake) },
  {
    name: "narrow-320-why",
    width: 320,
    height: 900,
    act: async (page, fake) => {
      await flow(page, fake);
      await page.locator(".list .row").first().click();
      await page.waitForSelector(".sentence");
    },
  },
  {
    name: "narrow-320-policy",
    path: "/?tab=policy",
    width: 320,
    height: 1400,
    act: async (page) => {
      await page.waitForSelector(".history li");
    },
  },
  {
    name: "narrow-320-engine",
    path: "/?tab=engine",
    width: 320,
    height: 1800,
    act: async (page) => {
      await page.waitForSelector(".log-line");
    },
  },
];

for (const scene of scenes) {
  for (const dark of scene.forcedColors ? [true] : [false, true]) {
    test(`R16 ${scene.name}, ${dark ? "dark" : "light"}`, { timeout: 3 * PATIENCE }, async () => {
      const fake = new Fake(scene.options);
      await fake.listen();
      scene.set?.(fake);
      const { page, context, errors } = await open(browser, fake.url + (scene.path ?? "/"), {
        dark,
        width: scene.width,
        height: scene.height,
        forcedColors: scene.forcedColors,
        // Nothing moves by itself, so that a picture shows a settled page.
        reducedMotion: false,
      });
      try {
        await scene.act(page, fake);
        await page.evaluate(() => new Promise((done) => setTimeout(done, 700)));
        await shot(page, `${scene.name}-${dark ? "dark" : "light"}`);
        assert.deepEqual(await axe(page), []);
        assert.deepEqual(errors, []);
        const wide = await page.evaluate(
          () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
        );
        assert.equal(wide, 0, "R14 no sideways scrolling of the page");
      } catch (error) {
        await shot(page, `failed-${scene.name}`);
        throw error;
      } finally {
        await context.close();
        await fake.close();
      }
    });
  }
}
