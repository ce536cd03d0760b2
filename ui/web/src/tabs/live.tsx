// The Live screen: charts, list, drawer, and what stands in their place before there is anything to show.

import { store } from "../app";
import { Stack } from "../charts/stack";
import { duration } from "../core/format";
import { Drawer } from "../parts/drawer";
import { heardText } from "../parts/header";
import { Mark } from "../parts/icons";
import { DecisionList } from "../parts/list";
import * as view from "../view";

function Waiting() {
  view.slowTick.value;
  const link = view.link.value;
  if (link.state === "unauthorised") {
    return (
      <div class="empty page">
        <Mark />
        <b>admitd asks for its token here</b>
        <span>From this address nothing is shown without it.</span>
        <button
          type="button"
          class="button primary"
          onClick={() => {
            view.askToken.value = "read";
          }}
        >
          Enter the token
        </button>
      </div>
    );
  }
  const wait =
    link.state === "reconnecting"
      ? `Next try in ${duration(Math.max(0, link.at - performance.now()))}.`
      : "Connecting…";
  return (
    <div class="empty page">
      <Mark />
      <b>{link.state === "reconnecting" ? "admitd does not answer" : "Waiting for admitd"}</b>
      <span>{wait}</span>
      <span class="muted">{heardText()}</span>
    </div>
  );
}

export function Live() {
  view.slowTick.value;
  if (!store.hello) return <Waiting />;
  const link = view.link.value.state;
  const old = link !== "live" && link !== "polling";
  return (
    <div class={old ? "live-page old" : "live-page"}>
      <Stack />
      <DecisionList />
      <Drawer />
    </div>
  );
}
