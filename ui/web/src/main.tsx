// The page.
import { render } from "preact";
import { markDirty, startApp } from "./app";
import { onKey } from "./keys";
import { Banners } from "./parts/banner";
import { Help, Palette, TokenPrompt } from "./parts/dialogs";
import { Header } from "./parts/header";
import { Strip } from "./parts/strip";
import { Voice } from "./parts/voice";
import { fetchScreens, Later } from "./tabs/later";
import { Live } from "./tabs/live";
import { watchTheme } from "./theme";
import * as view from "./view";

function Page() {
  const tab = view.tab.value;
  return (
    <div class={`app tab-${tab}`}>
      <Header />
      <Strip />
      <Banners />
      <main aria-label={tab}>
        <h1 class="sr">admitd: {tab}</h1>
        {tab === "live" ? <Live /> : tab === "policy" ? <Later name="Policy" /> : <Later name="Engine" />}
      </main>
      <Help />
      <Palette />
      <TokenPrompt />
      <Voice />
    </div>
  );
}

view.keepUrl();
view.keepTheme();
watchTheme(() => markDirty("all"));
addEventListener("keydown", onKey);
const root = document.querySelector("#app");
if (root) render(<Page />, root);
startApp();
setTimeout(() => void fetchScreens(), 1500);
