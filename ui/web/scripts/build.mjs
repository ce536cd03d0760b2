// Builds the dashboard into ui/dist: hashed assets, index.html, pre-compressed .br and .gz, and checks the size budget.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const out = join(root, "..", "dist");

/** Largest brotli sizes in bytes, by kind of file. */
export const budget = { ".js": 60_000, ".css": 8_000 };

const hash = (bytes) => createHash("sha256").update(bytes).digest("hex").slice(0, 10);

function clean() {
  mkdirSync(out, { recursive: true });
  for (const name of readdirSync(out).filter((n) => n !== ".gitkeep")) rmSync(join(out, name), { recursive: true });
}

async function bundle() {
  const result = await build({
    absWorkingDir: root,
    entryPoints: { app: "src/main.tsx", style: "src/style/index.css" },
    outdir: out,
    entryNames: "assets/[name]-[hash]",
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022", "chrome109", "firefox115", "safari16"],
    jsx: "automatic",
    jsxImportSource: "preact",
    define: { "process.env.NODE_ENV": '"production"' },
    legalComments: "none",
    metafile: true,
    write: true,
    logLevel: "warning",
  });
  return Object.keys(result.metafile.outputs).map((path) => path.slice(path.indexOf("assets/")));
}

function page(assets) {
  const icon = readFileSync(join(root, "src", "icon.svg"));
  const iconName = `assets/icon-${hash(icon)}.svg`;
  writeFileSync(join(out, iconName), icon);
  const script = assets.find((name) => name.endsWith(".js"));
  const style = assets.find((name) => name.endsWith(".css"));
  const html = readFileSync(join(root, "src", "index.html"), "utf8")
    .replace("{{script}}", script)
    .replace("{{style}}", style)
    .replace("{{icon}}", iconName);
  writeFileSync(join(out, "index.html"), html);
  return [...assets, iconName, "index.html"];
}

function compress(names) {
  const rows = [];
  for (const name of names) {
    const bytes = readFileSync(join(out, name));
    const br = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
    const gz = gzipSync(bytes, { level: 9 });
    writeFileSync(join(out, `${name}.br`), br);
    writeFileSync(join(out, `${name}.gz`), gz);
    rows.push({ name, raw: bytes.length, gz: gz.length, br: br.length });
  }
  return rows;
}

function report(rows) {
  let failed = false;
  for (const row of rows) {
    const limit = Object.entries(budget).find(([ext]) => row.name.endsWith(ext))?.[1];
    const over = limit !== undefined && row.br > limit;
    failed ||= over;
    const note = limit === undefined ? "" : `  budget ${limit}${over ? "  OVER BUDGET" : ""}`;
    console.log(`${row.name.padEnd(32)} ${String(row.raw).padStart(8)} raw ${String(row.gz).padStart(7)} gz ${String(row.br).padStart(7)} br${note}`);
  }
  return !failed;
}

if (!existsSync(join(root, "node_modules"))) {
  console.error("run npm ci in ui/web first");
  process.exit(2);
}
clean();
const rows = compress(page(await bundle()));
if (!report(rows)) process.exit(1);
