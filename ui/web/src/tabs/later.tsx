// Policy and Engine come in a file of their own, fetched as soon as the live view stands: before it is needed, and
// while admitd can still be reached.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type * as Screens from "./screens";

const screens = signal<typeof Screens | null>(null);
const failed = signal(false);

export async function fetchScreens(): Promise<void> {
  if (screens.value) return;
  try {
    screens.value = await import("./screens");
    failed.value = false;
  } catch {
    failed.value = true;
  }
}

export function Later(p: { name: "Engine" | "Policy" }) {
  useEffect(() => void fetchScreens(), []);
  const Screen = screens.value?.[p.name];
  if (Screen) return <Screen />;
  return (
    <div class="empty page">
      <b>{failed.value ? "This screen could not be fetched" : "Fetching…"}</b>
      {failed.value ? (
        <button type="button" class="button" onClick={() => location.reload()}>
          Load the page again
        </button>
      ) : null}
    </div>
  );
}
