import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message } from "../src/api";
import { BACKOFF_MAX_MS, Backoff } from "../src/core/backoff";
import { base64url, type Link, type Reply, SILENCE_MS, type Socket, Stream } from "../src/core/stream";
import { frame, hello } from "./messages";

test("R4 backoff: half a second, doubling to 15 s, full jitter, forgotten after 10 s of peace", () => {
  const top = new Backoff(() => 1);
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5, 6, 7].map(() => top.next(0)),
    [500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000],
  );
  top.opened(100);
  assert.equal(top.next(5000), BACKOFF_MAX_MS, "a short connection was not a good one");
  top.opened(6000);
  assert.equal(top.next(16_000), 500);
  const low = new Backoff(() => 0);
  assert.equal(low.next(0), 100, "never at once");
});

class FakeSocket implements Socket {
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  sent: string[] = [];
  closed = false;
  send(text: string): void {
    this.sent.push(text);
  }
  close(): void {
    this.closed = true;
  }
}

class Bench {
  now = 0;
  sockets: { path: string; protocols: string[]; socket: FakeSocket }[] = [];
  timers: { at: number; run: () => void; off: boolean }[] = [];
  links: Link[] = [];
  got: Message[] = [];
  fetched: string[] = [];
  seq = 0;
  token = "";
  answer: (path: string) => Reply = () => ({ status: 200, json: async () => ({}) });
  readonly stream = new Stream({
    open: (path, protocols) => {
      const socket = new FakeSocket();
      this.sockets.push({ path, protocols, socket });
      return socket;
    },
    fetch: async (path) => {
      this.fetched.push(path);
      return this.answer(path);
    },
    now: () => this.now,
    later: (ms, run) => {
      const timer = { at: this.now + ms, run, off: false };
      this.timers.push(timer);
      return () => {
        timer.off = true;
      };
    },
    random: () => 1,
    token: () => this.token,
    pool: () => "",
    lastSeq: () => this.seq,
    onMessage: (m) => {
      this.got.push(m);
      this.seq = m.seq;
    },
    onLink: (l) => this.links.push(l),
  });

  get last() {
    const found = this.sockets.at(-1);
    assert.ok(found);
    return found;
  }
  get state(): string {
    return this.stream.link.state;
  }
  say(m: Message): void {
    this.last.socket.onmessage?.({ data: JSON.stringify(m) });
  }
  /** Lets promises that are ready run on. */
  async settle(): Promise<void> {
    for (let i = 0; i < 20; i++) await Promise.resolve();
  }
  async fail(): Promise<void> {
    this.last.socket.onclose?.({ code: 1006, reason: "" });
    await this.settle();
  }
  async pass(ms: number): Promise<void> {
    const end = this.now + ms;
    for (;;) {
      const due = this.timers.filter((t) => !t.off && t.at <= end).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      due.off = true;
      this.now = due.at;
      due.run();
      await this.settle();
    }
    this.now = end;
  }
}

test("R4 resume: the next try asks for what came after the last number", async () => {
  const bench = new Bench();
  bench.answer = () => {
    throw new Error("network is down");
  };
  bench.stream.start();
  assert.equal(bench.last.path, "/api/v1/stream");
  bench.say(hello());
  bench.say(frame(117));
  assert.equal(bench.state, "live");
  await bench.fail();
  assert.equal(bench.state, "reconnecting");
  await bench.pass(500);
  assert.equal(bench.last.path, "/api/v1/stream?resume=117");
});

test("R4 the network or the tab coming back means: try now", async () => {
  const bench = new Bench();
  bench.answer = () => {
    throw new Error("down");
  };
  bench.stream.start();
  await bench.fail();
  const before = bench.sockets.length;
  bench.stream.nudge();
  assert.equal(bench.sockets.length, before + 1);
  bench.say(hello());
  bench.stream.nudge();
  assert.equal(bench.sockets.length, before + 1, "nothing to do while live");
});

test("R4 an open but silent socket counts as dead", async () => {
  const bench = new Bench();
  bench.answer = () => {
    throw new Error("down");
  };
  bench.stream.start();
  bench.say(hello());
  const { socket } = bench.last;
  await bench.pass(SILENCE_MS + 1);
  assert.equal(socket.closed, true);
  assert.ok(bench.links.some((l) => l.state === "reconnecting"));
});

test("R7 polling when websockets are blocked, and back when they are not", async () => {
  const bench = new Bench();
  bench.answer = (path) => ({
    status: 200,
    json: async () =>
      path.startsWith("/api/v1/frame")
        ? { messages: [bench.seq === 0 ? hello() : frame(bench.seq + 1)], next: 0, more: false }
        : {},
  });
  bench.stream.start();
  for (let i = 0; i < 3; i++) {
    await bench.fail();
    await bench.pass(5000);
  }
  assert.equal(bench.state, "polling");
  assert.ok(bench.fetched.includes("/api/v1/frame"));
  assert.ok(bench.fetched.includes("/api/v1/frame?since=100"));
  const tries = bench.sockets.length;
  await bench.pass(31_000);
  assert.equal(bench.sockets.length, tries + 1, "the websocket is tried again after a while");
  bench.say(frame(bench.seq + 1));
  assert.equal(bench.state, "live");
});

test("R17 a refused token is a state of its own, not an endless loop", async () => {
  const bench = new Bench();
  bench.answer = () => ({ status: 401, json: async () => ({}) });
  bench.stream.start();
  await bench.fail();
  assert.equal(bench.state, "unauthorised");
  const tries = bench.sockets.length;
  await bench.pass(60_000);
  assert.equal(bench.sockets.length, tries);
  bench.token = "geheim/§";
  bench.stream.restart();
  assert.deepEqual(bench.last.protocols, ["admitd.v1", `admitd.token.${base64url("geheim/§")}`]);
  assert.match(bench.last.protocols[1] ?? "", /^[\w.-]+$/);
});

test("R2 a hidden tab asks for one delivery a second", () => {
  const bench = new Bench();
  bench.stream.start();
  bench.say(hello());
  bench.stream.setRate(1);
  bench.stream.setRate(1);
  bench.stream.setRate(10);
  assert.deepEqual(bench.last.socket.sent, ['{"rate":1}', '{"rate":10}']);
});

test("nonsense on the wire is passed over", () => {
  const bench = new Bench();
  bench.stream.start();
  for (const data of ["{", "null", "7", '{"x":1}', new ArrayBuffer(2)]) bench.last.socket.onmessage?.({ data });
  assert.deepEqual(bench.got, []);
});
