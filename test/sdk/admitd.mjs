// Starts the built admitd with its simulated engine and stops it again.
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const binary = new URL("../../bin/admitd", import.meta.url).pathname;
export const model = "Qwen2.5-0.5B";

function freePort() {
  return new Promise((resolve, reject) => {
    const s = createServer();
    s.on("error", reject);
    s.listen(0, "127.0.0.1", () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
}

export async function startAdmitd({ policy, config = "", engineArgs = [] }) {
  const dir = await mkdtemp(join(tmpdir(), "admitd-sdk-"));
  await writeFile(join(dir, "policy.yaml"), policy);
  await writeFile(join(dir, "config.yaml"), config);
  const [gate, admin] = [await freePort(), await freePort()];
  const args = ["serve", "--engine", "sim", "--model", model, "--config", join(dir, "config.yaml"), "--policy", join(dir, "policy.yaml"),
    "--listen", `127.0.0.1:${gate}`, "--admin", `127.0.0.1:${admin}`, "--state-dir", join(dir, "state"), "--", "--load-time", "100ms", ...engineArgs];
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (b) => (output += b));
  child.stderr.on("data", (b) => (output += b));
  const ended = new Promise((resolve) => child.on("exit", resolve));
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
    await rm(dir, { recursive: true, force: true });
  };
  const deadline = Date.now() + 60_000;
  for (;;) {
    const ok = await fetch(`http://127.0.0.1:${admin}/readyz`).then((r) => r.ok, () => false);
    if (ok) break;
    if (child.exitCode !== null || Date.now() > deadline) throw new Error(`admitd is not ready:\n${output}`);
    await new Promise((r) => setTimeout(r, 50));
  }
  const token = (await readFile(join(dir, "state", "admin.token"), "utf8")).trim();
  return { gate: `http://127.0.0.1:${gate}`, admin: `http://127.0.0.1:${admin}`, token, stop, output: () => output };
}

// recorder is a fetch that remembers every try: when, and what came back.
export function recorder() {
  const tries = [];
  const recording = async (url, init) => {
    const began = Date.now();
    const response = await fetch(url, init);
    tries.push({ began, ended: Date.now(), status: response.status, headers: response.headers });
    return response;
  };
  return { tries, fetch: recording };
}
