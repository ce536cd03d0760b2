// Keeps one source of messages: the websocket with resume and backoff, polling while that is blocked.
// Clock, timers, sockets and fetch are given from outside, so that tests drive it without waiting.
import type { Message, Poll, ViewerMessage } from "../api";
import { STREAM_PROTOCOL, TOKEN_PROTOCOL } from "../api";
import { Backoff } from "./backoff";

export type Link =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "polling" }
  | { state: "reconnecting"; at: number; why: string }
  | { state: "unauthorised" };

/** The part of WebSocket that is used. */
export interface Socket {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  send(text: string): void;
  close(): void;
}

export interface Reply {
  status: number;
  json(): Promise<unknown>;
}

export interface StreamDeps {
  open(path: string, protocols: string[]): Socket;
  fetch(path: string): Promise<Reply>;
  now(): number;
  later(ms: number, run: () => void): () => void;
  random(): number;
  token(): string;
  pool(): string;
  /** Number of the last frame or event applied, 0 for none. */
  lastSeq(): number;
  onMessage(message: Message): void;
  onLink(link: Link): void;
}

/** Silence after which an open socket counts as dead: the server sends at least one frame a second. */
export const SILENCE_MS = 15_000;
/** Failed tries in a row without one message, after which polling begins. */
export const TRIES_BEFORE_POLLING = 3;
const POLL_MS = 1000;
/** While polling, how often the websocket is tried again. */
const RETRY_SOCKET_MS = 30_000;

export class Stream {
  private readonly deps: StreamDeps;
  private readonly backoff: Backoff;
  private socket: Socket | null = null;
  private cancel: () => void = () => {};
  private cancelSilence: () => void = () => {};
  private failures = 0;
  private generation = 0;
  private rate = 10;
  private retrySocketAt = 0;
  private stopped = false;
  link: Link = { state: "connecting" };

  constructor(deps: StreamDeps) {
    this.deps = deps;
    this.backoff = new Backoff(deps.random);
  }

  start(): void {
    this.stopped = false;
    this.connect();
  }

  stop(): void {
    this.stopped = true;
    this.drop();
  }

  /** Tries at once, after the network, the tab or a token came back; does nothing while all is well. */
  nudge(): void {
    if (this.stopped || this.link.state === "live" || this.link.state === "connecting") return;
    this.failures = 0;
    this.connect();
  }

  /** Starts over, for another pool or token. */
  restart(): void {
    if (this.stopped) return;
    this.failures = 0;
    this.connect();
  }

  /** Deliveries a second that the viewer wants. */
  setRate(rate: number): void {
    if (rate === this.rate) return;
    this.rate = rate;
    if (this.link.state === "live") this.sendRate();
  }

  private sendRate(): void {
    const message: ViewerMessage = { rate: this.rate };
    this.socket?.send(JSON.stringify(message));
  }

  private set(link: Link): void {
    this.link = link;
    this.deps.onLink(link);
  }

  private drop(): void {
    this.generation++;
    this.cancel();
    this.cancelSilence();
    const old = this.socket;
    this.socket = null;
    if (old) {
      old.onopen = old.onmessage = old.onclose = null;
      old.close();
    }
  }

  private connect(): void {
    this.drop();
    if (this.link.state !== "polling") this.set({ state: "connecting" });
    const token = this.deps.token();
    const protocols = token === "" ? [STREAM_PROTOCOL] : [STREAM_PROTOCOL, TOKEN_PROTOCOL + base64url(token)];
    const socket = this.deps.open(this.path("/api/v1/stream", "resume"), protocols);
    this.socket = socket;
    this.watchSilence();
    socket.onmessage = (event) => this.received(event.data);
    socket.onclose = (event) => {
      void this.lost(event.reason || `closed with code ${event.code}`);
    };
  }

  private path(base: string, resumeName: string): string {
    const q = new URLSearchParams();
    const seq = this.deps.lastSeq();
    if (seq > 0) q.set(resumeName, String(seq));
    if (this.deps.pool() !== "") q.set("pool", this.deps.pool());
    const text = q.toString();
    return text === "" ? base : `${base}?${text}`;
  }

  private watchSilence(): void {
    this.cancelSilence();
    this.cancelSilence = this.deps.later(SILENCE_MS, () => {
      if (this.socket) void this.lost(`nothing heard for ${SILENCE_MS / 1000} s`);
    });
  }

  private received(data: unknown): void {
    this.watchSilence();
    if (this.link.state !== "live") {
      this.failures = 0;
      this.backoff.opened(this.deps.now());
      this.set({ state: "live" });
      if (this.rate !== 10) this.sendRate();
    }
    const message = decode(data);
    if (message) this.deps.onMessage(message);
  }

  private async lost(why: string): Promise<void> {
    this.drop();
    const generation = this.generation;
    this.failures++;
    const delay = this.backoff.next(this.deps.now());
    if (this.link.state !== "polling") this.set({ state: "reconnecting", at: this.deps.now() + delay, why });
    // A browser does not say why a websocket was refused; a plain request does.
    const status = await this.probe();
    if (generation !== this.generation || this.stopped) return;
    if (status === 401 || status === 403) {
      this.set({ state: "unauthorised" });
      return;
    }
    if (status === 200 && (this.failures >= TRIES_BEFORE_POLLING || this.link.state === "polling")) {
      this.retrySocketAt = this.deps.now() + RETRY_SOCKET_MS;
      await this.poll(generation);
      return;
    }
    if (this.link.state === "polling") this.set({ state: "reconnecting", at: this.deps.now() + delay, why });
    this.cancel = this.deps.later(delay, () => this.connect());
  }

  private async probe(): Promise<number> {
    try {
      return (await this.deps.fetch("/api/v1/status")).status;
    } catch {
      return 0;
    }
  }

  private async poll(generation: number): Promise<void> {
    let more = false;
    try {
      const reply = await this.deps.fetch(this.path("/api/v1/frame", "since"));
      if (generation !== this.generation || this.stopped) return;
      if (reply.status !== 200) throw new Error(`status ${reply.status}`);
      const answer = (await reply.json()) as Poll;
      if (generation !== this.generation) return;
      if (this.link.state !== "polling") this.set({ state: "polling" });
      for (const message of answer.messages ?? []) this.deps.onMessage(message);
      more = answer.more;
    } catch (error) {
      if (generation !== this.generation) return;
      this.link = { state: "connecting" };
      void this.lost(error instanceof Error ? error.message : "polling failed");
      return;
    }
    if (this.deps.now() >= this.retrySocketAt) {
      this.connect();
      return;
    }
    this.cancel = this.deps.later(more ? 0 : POLL_MS, () => void this.poll(generation));
  }
}

export function decode(data: unknown): Message | null {
  if (typeof data !== "string") return null;
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === "object" && value !== null && "kind" in value ? (value as Message) : null;
  } catch {
    return null;
  }
}

/** Base64url without padding, of the UTF-8 bytes. */
export function base64url(text: string): string {
  const binary = Array.from(new TextEncoder().encode(text), (b) => String.fromCharCode(b)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
