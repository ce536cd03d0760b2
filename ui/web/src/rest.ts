// Requests to the admin API, with the token of this tab when there is one.
import type { Problem } from "./api";
import { askToken } from "./view";

const KEY = "admitd.token";

/** The admin token of this browser tab; "" when none was given. */
export function token(): string {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function setToken(value: string): void {
  try {
    if (value === "") sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch {
    // Without storage the token cannot be kept; the next request asks again.
  }
}

export type RestReply<T> =
  | { ok: true; status: number; body: T; etag: string }
  | { ok: false; status: number; problem: Problem };

export interface RestOptions {
  body?: unknown;
  ifMatch?: string;
  /** Do not ask for a token when the answer is 401. */
  quiet?: boolean;
  signal?: AbortSignal;
}

export async function rest<T>(method: string, path: string, o: RestOptions = {}): Promise<RestReply<T>> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (token() !== "") headers.Authorization = `Bearer ${token()}`;
  if (o.body !== undefined || method !== "GET") headers["Content-Type"] = "application/json";
  if (o.ifMatch) headers["If-Match"] = o.ifMatch;
  const init: RequestInit = { method, headers, cache: "no-store" };
  if (method !== "GET") init.body = JSON.stringify(o.body ?? {});
  if (o.signal) init.signal = o.signal;
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    return failure(0, "admitd did not answer", error instanceof Error ? error.message : "");
  }
  if (response.status === 401 && !o.quiet) askToken.value = method === "GET" ? "read" : "write";
  const body = await parse(response);
  if (response.ok)
    return { ok: true, status: response.status, body: body as T, etag: response.headers.get("ETag") ?? "" };
  if (typeof body === "object" && body !== null && "title" in body) {
    return { ok: false, status: response.status, problem: body as Problem };
  }
  return failure(response.status, `HTTP ${response.status}`, response.statusText);
}

async function parse(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch {
    return null;
  }
}

function failure(status: number, title: string, detail: string): { ok: false; status: number; problem: Problem } {
  return { ok: false, status, problem: { type: "about:blank", title, status, detail } };
}
