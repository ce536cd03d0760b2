// Lines under the strip for what needs a person: engine down, reload refused, connection lost.
import type { Trouble } from "../api";
import { store } from "../app";
import { age, asSentence, instant } from "../core/format";
import * as view from "../view";
import { heardAgo, heardText } from "./header";

interface Note {
  key: string;
  tone: "bad" | "warn" | "calm";
  title: string;
  text: string;
}

const LOADING = new Set(["starting", "loading"]);

/** What happens next in a trouble, when, and what a person can do; "" for none. */
function troubleText(trouble: Trouble | undefined): string {
  if (!trouble) return "";
  const due = instant(trouble.act_at);
  const when = due !== null && due > Date.now() ? `In ${age(due - Date.now())}, if nothing changes: ` : "Next: ";
  return ` ${when}${trouble.next}. ${asSentence(trouble.hint)}`;
}

function engineNote(): Note | null {
  const engine = store.pool?.engine;
  const state = store.engine || engine?.state || "";
  if (state === "" || state === "ready" || !engine) return null;
  if (LOADING.has(state)) {
    const left =
      engine.expected_ready_in_ns > 0 ? ` About ${age(engine.expected_ready_in_ns / 1e6)} left, by past starts.` : "";
    const trouble = troubleText(engine.trouble);
    const tone = trouble === "" ? "calm" : "warn";
    return { key: "engine", tone, title: `Engine ${state}`, text: `${asSentence(engine.text)}${trouble || left}` };
  }
  const restart = instant(engine.restart_at);
  const next =
    restart !== null && restart > Date.now()
      ? ` Next start in ${age(restart - Date.now())}.`
      : engine.gave_up
        ? " admitd has given up restarting it."
        : "";
  const exitHint = engine.last_exit?.hint ? ` ${asSentence(engine.last_exit.hint)}` : "";
  const hint = troubleText(engine.trouble) || exitHint;
  const tone = state === "failed" || state === "wedged" ? "bad" : "warn";
  return { key: "engine", tone, title: `Engine ${state}`, text: `${asSentence(engine.text)}${next}${hint}` };
}

function reloadNote(): Note | null {
  const config = store.status?.config;
  if (!config || config.last_reload_ok) return null;
  return {
    key: "reload",
    tone: "bad",
    title: "Reload refused",
    text: `${asSentence(config.problem ?? "the last reload failed")} The last good configuration goes on.`,
  };
}

function linkNote(): Note | null {
  const link = view.link.value;
  if (link.state === "reconnecting" && store.hello) {
    return { key: "link", tone: "warn", title: "Connection lost", text: `What is shown is old: ${heardText()}.` };
  }
  if (link.state === "polling") {
    return {
      key: "link",
      tone: "calm",
      title: "Websocket blocked",
      text: "Something between here and admitd stops it; the page polls once a second instead.",
    };
  }
  if (link.state === "live" && heardAgo() > 3000) {
    return {
      key: "link",
      tone: "warn",
      title: "No frames",
      text: `The connection is open but silent: ${heardText()}.`,
    };
  }
  if (store.bye !== "" && link.state !== "live") {
    return { key: "link", tone: "warn", title: "admitd said good-bye", text: store.bye };
  }
  return null;
}

export function Banners() {
  view.slowTick.value;
  const notes = [linkNote(), engineNote(), reloadNote()].filter((n): n is Note => n !== null);
  return (
    <div class="banners">
      {notes.map((n) => (
        <div
          key={n.key}
          class={`banner ${n.tone}`}
          role={n.tone === "bad" ? "alert" : "status"}
          aria-live={n.tone === "bad" ? "assertive" : "off"}
        >
          <b>{n.title}</b>
          <span>{n.text}</span>
        </div>
      ))}
    </div>
  );
}
