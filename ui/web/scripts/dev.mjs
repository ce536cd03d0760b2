// Serves the dashboard over the scripted fake server, for work on the page without an engine.
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const outdir = join(root, ".cache", "dev");
mkdirSync(outdir, { recursive: true });
await import("./build.mjs");
await build({
  absWorkingDir: root,
  entryPoints: ["e2e/fake/main.ts"],
  outfile: join(outdir, "main.mjs"),
  bundle: true,
  packages: "external",
  platform: "node",
  format: "esm",
  target: "node20",
  logLevel: "warning",
});
process.exit(
  spawnSync(process.execPath, [join(outdir, "main.mjs"), ...process.argv.slice(2)], { cwd: root, stdio: "inherit" })
    .status ?? 1,
);
