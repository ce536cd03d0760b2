// Bundles every *.test.ts of one folder and runs them with Node's test runner: node scripts/test.mjs test|e2e [name part].
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = process.argv[2] ?? "test";
const part = process.argv[3] ?? "";
const names = readdirSync(join(root, folder))
  .filter((name) => name.endsWith(".test.ts") && name.includes(part))
  .sort();
const outdir = join(root, ".cache", folder);
rmSync(outdir, { recursive: true, force: true });
mkdirSync(outdir, { recursive: true });

await build({
  absWorkingDir: root,
  entryPoints: names.map((name) => join(folder, name)),
  outdir,
  bundle: true,
  packages: "external",
  platform: "node",
  format: "esm",
  target: "node20",
  sourcemap: "inline",
  outExtension: { ".js": ".mjs" },
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});

const files = names.map((name) => join(outdir, name.replace(/\.ts$/, ".mjs")));
const run = spawnSync(
  process.execPath,
  ["--enable-source-maps", "--test", "--test-reporter=spec", "--test-concurrency=1", ...files],
  { cwd: root, stdio: "inherit" },
);
process.exit(run.status ?? 1);
