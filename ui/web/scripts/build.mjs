// Builds the dashboard into ui/dist: hashed assets, index.html, pre-compressed .br and .gz, and checks the size budget.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const out = join(root, "..", "dist");

/** Largest brotli sizes in bytes: what the first view loads, the style, and everything together. */
export const budget = { script: 60_000, style: 8_000, all: 90_000 };

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
    chunkNames: "assets/[name]-[hash]",
    splitting: true,
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022", "chrome109", "firefox115", "safari16"],
    // The classic factory makes a smaller page than the automatic runtime.
    tsconfigRaw: { compilerOptions: { jsx: "react", jsxFactory: "createNode", jsxFragmentFactory: "Fragment" } },
    inject: ["src/jsx.ts"],
    define: { "process.env.NODE_ENV": '"production"' },
    legalComments: "none",
    metafile: true,
    write: true,
    logLevel: "warning",
  });
  const short = (path) => path.slice(path.indexOf("assets/"));
  const outputs = Object.entries(result.metafile.outputs);
  const entry = outputs.find(([, o]) => o.entryPoint === "src/main.tsx");
  // Scripts that the first view cannot do without: the entry and what it imports at once.
  const first = [entry[0], ...entry[1].imports.filter((i) => i.kind === "import-statement").map((i) => i.path)];
  return { names: outputs.map(([path]) => short(path)), first: first.map(short) };
}

function page({ names, first }) {
  const icon = readFileSync(join(root, "src", "icon.svg"));
  const iconName = `assets/icon-${hash(icon)}.svg`;
  writeFileSync(join(out, iconName), icon);
  const preload = first.slice(1).map((name) => `<link rel="modulepreload" href="/${name}" />`);
  const html = readFileSync(join(root, "src", "index.html"), "utf8")
    .replace("{{script}}", first[0])
    .replace("{{preload}}", preload.join("\n    "))
    .replace(
      "{{style}}",
      names.find((name) => name.endsWith(".css")),
    )
    .replace("{{icon}}", iconName);
  writeFileSync(join(out, "index.html"), html);
  return [...names, iconName, "index.html"];
}

function compress(names) {
  const rows = [];
  for (const name of names) {
    const bytes = readFileSync(join(out, name));
    const br = brotliCompressSync(bytes, {
      params: {
        [constants.BROTLI_PARAM_QUALITY]: 11,
        [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
        [constants.BROTLI_PARAM_LGWIN]: 22,
        [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
      },
    });
    const gz = gzipSync(bytes, { level: 9 });
    writeFileSync(join(out, `${name}.br`), br);
    writeFileSync(join(out, `${name}.gz`), gz);
    rows.push({ name, raw: bytes.length, gz: gz.length, br: br.length });
  }
  return rows;
}

function report(rows, first) {
  for (const row of rows) {
    const cells = [row.raw, row.gz, row.br].map((n) => String(n).padStart(8));
    console.log(
      `${row.name.padEnd(34)}${cells[0]} raw${cells[1]} gz${cells[2]} br${first.includes(row.name) ? "  first view" : ""}`,
    );
  }
  const sum = (pick) => rows.filter(pick).reduce((n, row) => n + row.br, 0);
  const sums = [
    ["script of the first view", sum((row) => first.includes(row.name)), budget.script],
    ["style", sum((row) => row.name.endsWith(".css")), budget.style],
    ["all", sum(() => true), budget.all],
  ];
  for (const [name, n, limit] of sums)
    console.log(`${name}: ${n} of ${limit} bytes br${n > limit ? "  OVER BUDGET" : ""}`);
  return sums.every(([, n, limit]) => n <= limit);
}

if (!existsSync(join(root, "node_modules"))) {
  console.error("run npm ci in ui/web first");
  process.exit(2);
}
clean();
const built = await bundle();
if (!report(compress(page(built)), built.first)) process.exit(1);
