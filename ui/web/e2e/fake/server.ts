// A stand-in for the admin server: serves ui/dist, scripted REST answers and websocket frames, and can lose,
// reorder, restart, fall silent and flood.
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket as NetSocket } from "node:net";
import { extname, join } from "node:path";
import { type WebSocket, WebSocketServer } from "ws";
import type { Cell, DecisionItem, Frame, HistoryRows, Message, Outcome } from "../../src/api";
import { reasons } from "./reasons";
import { answer } from "./rest";
import { State } from "./state";
import { GAUGES, type Step, World, type WorldOptions } from "./world";

/** dist lies beside ui/web, from which every script here runs. */
export const DIST = join(process.cwd(), "..", "dist");
export const CSP = "default-src 'self'";
const VERDICTS = ["admit", "defer", "reject"];
const DECISION_FIELDS = [
  "id",
  "t",
  "verdict",
  "reason",
  "status",
  "tenant",
  "class",
  "session",
  "attempt",
  "prompt_tokens",
  "output_tokens",
  "reserved_tokens",
  "retry_after_ms",
  "held_ms",
  "kv_used",
  "waiting",
];
const OUTCOME_FIELDS = [
  "id",
  "ending",
  "status",
  "ttft_ms",
  "tpot_ms",
  "total_ms",
  "prompt_tokens",
  "completion_tokens",
  "slo_met",
];
const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

export interface FakeOptions extends WorldOptions {
  /** Seconds of history before the start. */
  history?: number;
}

export class Fake {
  readonly world: World;
  readonly state: State;
  bootId = "boot-1";
  startedAt: number;
  seq = 1000;
  token = "";
  /** Refuses websockets, as a proxy that does not know them would. */
  blockSocket = false;
  /** Answers nothing at all. */
  down = false;
  /** Serves the page but answers nothing under /api. */
  apiDown = false;
  /** Requests seen: method and path. */
  seen: string[] = [];
  /** Websocket requests seen: path and subprotocols. */
  upgrades: { path: string; protocols: string }[] = [];
  fromViewer: string[] = [];
  history: { t: number; row: (number | null)[] }[] = [];
  frames: Message[] = [];
  private readonly http: Server;
  private readonly sockets = new WebSocketServer({
    noServer: true,
    handleProtocols: (set) => (set.has("admitd.v1") ? "admitd.v1" : false),
  });
  private readonly raw = new Set<NetSocket>();
  private strings: string[] = [];
  private timer: NodeJS.Timeout | undefined;

  constructor(o: FakeOptions = {}) {
    const seconds = o.history ?? 900;
    this.startedAt = Date.now() - 11_600_000;
    this.world = new World(Date.now() - seconds * 1000, o);
    this.state = new State(Date.now());
    for (let i = 0; i < seconds; i++) this.remember(this.world.step(1000));
    this.http = createServer((req, res) => this.request(req, res));
    this.http.on("connection", (socket) => {
      this.raw.add(socket);
      socket.on("close", () => this.raw.delete(socket));
    });
    this.http.on("upgrade", (req, socket, head) => this.upgrade(req, socket as NetSocket, head));
  }

  private remember(step: Step): void {
    this.history.push({ t: step.t, row: step.gauges });
    if (this.history.length > 900) this.history.shift();
  }

  async listen(port = 0): Promise<void> {
    await new Promise<void>((done) => this.http.listen(port, "127.0.0.1", done));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.http.address() as AddressInfo).port}`;
  }

  get viewers(): number {
    return this.sockets.clients.size;
  }

  /** Sends frames by the clock. */
  run(ms = 100): void {
    let last = Date.now();
    this.timer = setInterval(() => {
      const now = Date.now();
      this.tick(now - last);
      last = now;
    }, ms);
  }

  halt(): void {
    clearInterval(this.timer);
  }

  async close(): Promise<void> {
    this.halt();
    for (const socket of this.raw) socket.destroy();
    await new Promise<void>((done) => this.http.close(() => done()));
  }

  /** One frame further; answers the frame. */
  tick(ms = 100): Frame {
    const frame = this.frame(this.world.step(ms));
    this.send(frame);
    return frame;
  }

  /** Builds the next frame without sending it. */
  next(ms = 100): Frame {
    return this.frame(this.world.step(ms));
  }

  send(message: Message): void {
    if (message.kind === "frame" || message.kind === "event") {
      this.frames.push(message);
      if (this.frames.length > 9000) this.frames.shift();
    }
    const text = JSON.stringify(message);
    for (const client of this.sockets.clients) client.send(text);
  }

  /** A frame with n decisions, all of them copies of one under new ids. */
  flood(n: number): void {
    const frame = this.next(100);
    const item = this.world.items.at(-1);
    if (!item) return;
    const cells = this.decisionCells(item, Date.parse(item.at), []);
    frame.d = Array.from({ length: n }, (_, i) => [`f${this.seq}-${i}`, i % 100, i % 3, ...cells.slice(3)]);
    frame.n = [Math.ceil(n / 3), Math.ceil((n - 1) / 3), Math.ceil((n - 2) / 3)];
    this.send(frame);
  }

  event(name: string, level: string, text: string): void {
    this.seq++;
    this.send({ v: 1, seq: this.seq, t: this.world.now, kind: "event", name, level, text });
  }

  /** Ends every websocket, as a broken network does. */
  cut(): void {
    for (const client of this.sockets.clients) client.terminate();
  }

  /** Comes back as another process: new boot id, numbers from another start, nothing remembered. */
  restart(): void {
    this.bootId = `${this.bootId}+`;
    this.seq += 100_000;
    this.frames = [];
    this.history = [];
    this.strings = [];
    this.cut();
  }

  private intern(word: string, fresh: string[]): number {
    const i = this.strings.indexOf(word);
    if (i >= 0) return i;
    this.strings.push(word);
    fresh.push(word);
    return this.strings.length - 1;
  }

  private frame(step: Step): Frame {
    const base = this.strings.length;
    const fresh: string[] = [];
    const d = step.decisions.map((item) => this.decisionCells(item, step.t, fresh));
    const o = step.outcomes.map((outcome) => this.outcomeCells(outcome, fresh));
    this.seq++;
    if (step.t - (this.history.at(-1)?.t ?? 0) >= 1000) this.remember(step);
    return {
      v: 1,
      seq: this.seq,
      t: step.t,
      kind: "frame",
      g: step.gauges,
      ...(fresh.length > 0 ? { s: fresh, sb: base } : {}),
      d,
      o,
      n: step.counts,
      e: this.state.engine.state,
      r: this.state.policy.rev,
    };
  }

  decisionCells(item: DecisionItem, t: number, fresh: string[]): Cell[] {
    const d = item.decision;
    return [
      d.id,
      t - Date.parse(item.at),
      VERDICTS.indexOf(d.verdict),
      reasons.findIndex((r) => r.code === d.reason),
      d.status ?? 0,
      this.intern(d.tenant, fresh),
      this.intern(d.class, fresh),
      this.intern(d.session ?? "", fresh),
      d.attempt,
      d.prompt_tokens_estimated,
      d.output_tokens_estimated,
      d.reserved_tokens,
      d.retry_after_ms ?? 0,
      d.held_ms ?? 0,
      d.signals?.find((s) => s.name === "kv_used")?.value ?? null,
      d.signals?.find((s) => s.name === "waiting")?.value ?? null,
    ];
  }

  private outcomeCells(o: Outcome, fresh: string[]): Cell[] {
    return [
      o.id,
      this.intern(o.ending, fresh),
      o.status,
      o.ttft_ms,
      o.tpot_ms,
      o.total_ms,
      o.prompt_tokens,
      o.completion_tokens,
      o.slo_met ? 1 : 0,
    ];
  }

  hello(): Message {
    return {
      v: 1,
      seq: this.seq,
      t: this.world.now,
      kind: "hello",
      boot_id: this.bootId,
      version: "0.1.0",
      pool: "Qwen2.5-0.5B",
      pools: ["Qwen2.5-0.5B"],
      policy: this.state.policy,
      gauges: GAUGES,
      decision_fields: DECISION_FIELDS,
      outcome_fields: OUTCOME_FIELDS,
      verdicts: VERDICTS,
      reasons,
      strings: this.strings,
      ring_from: this.frames[0]?.seq ?? this.seq,
      ring_to: this.seq,
      frame_ms: 100,
      slo_ttft_ms: 1000,
      slo_tpot_ms: 50,
      simulated: this.state.simulated,
    };
  }

  snap(): Message {
    const rows: HistoryRows = {
      gauges: GAUGES,
      t_ms: this.history.map((h) => h.t),
      rows: this.history.map((h) => h.row),
    };
    return {
      v: 1,
      seq: this.seq,
      t: this.world.now,
      kind: "snap",
      status: this.status(),
      history: rows,
      decisions: this.bootId === "boot-1" ? this.world.items.slice(-200).reverse() : [],
      events: this.frames
        .filter((f) => f.kind === "event")
        .map((f) => ({ t: f.t, name: f.name, level: f.level, text: f.text })),
    };
  }

  status() {
    return this.state.status(this.world, this.bootId, this.startedAt, this.viewers);
  }

  /** What a viewer that knows everything up to since gets first. */
  opening(since: number): Message[] {
    const first = this.frames[0]?.seq ?? Number.POSITIVE_INFINITY;
    if (since > 0 && since >= first - 1 && since <= this.seq) return this.frames.filter((f) => f.seq > since);
    const gap: Message[] =
      since > 0 && since < this.seq
        ? [{ v: 1, seq: this.seq, t: this.world.now, kind: "gap", from: since + 1, to: this.seq }]
        : [];
    return [this.snap(), ...gap];
  }

  authorised(req: IncomingMessage): boolean {
    return this.token === "" || req.headers.authorization === `Bearer ${this.token}`;
  }

  private upgrade(req: IncomingMessage, socket: NetSocket, head: Buffer): void {
    const url = new URL(req.url ?? "/", this.url);
    const protocols = String(req.headers["sec-websocket-protocol"] ?? "");
    this.upgrades.push({ path: url.pathname + url.search, protocols });
    const token = /admitd\.token\.([\w-]+)/.exec(protocols)?.[1] ?? "";
    const good = this.token === "" || Buffer.from(token, "base64url").toString() === this.token;
    if (this.blockSocket || this.down || this.apiDown || !good) {
      socket.end(`HTTP/1.1 ${good ? "502 Bad Gateway" : "401 Unauthorized"}\r\nConnection: close\r\n\r\n`);
      return;
    }
    this.sockets.handleUpgrade(req, socket, head, (client: WebSocket) => {
      client.on("message", (data) => this.fromViewer.push(String(data)));
      client.send(JSON.stringify(this.hello()));
      for (const m of this.opening(Number(url.searchParams.get("resume") ?? 0))) client.send(JSON.stringify(m));
    });
  }

  private request(req: IncomingMessage, res: ServerResponse): void {
    const url = new URL(req.url ?? "/", this.url);
    this.seen.push(`${req.method} ${url.pathname}${url.search}`);
    if (this.down || (this.apiDown && url.pathname.startsWith("/api/"))) {
      req.socket.destroy();
      return;
    }
    res.setHeader("Content-Security-Policy", CSP);
    if (url.pathname.startsWith("/api/")) void answer(this, req, res, url);
    else file(res, url.pathname);
  }
}

function file(res: ServerResponse, path: string): void {
  const name = path === "/" ? "index.html" : path.slice(1);
  try {
    const bytes = readFileSync(join(DIST, name));
    res.setHeader("Content-Type", TYPES[extname(name)] ?? "application/octet-stream");
    res.end(bytes);
  } catch {
    res.statusCode = 404;
    res.end();
  }
}
