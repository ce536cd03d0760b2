// Help, command palette and the token prompt.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as act from "../actions";
import { FILTER_WORDS } from "../core/filter";
import { TABS, THEMES, WINDOWS, windowName } from "../core/url";
import { KEY_HELP } from "../keys";
import { setToken, token } from "../rest";
import * as view from "../view";
import { Icon } from "./icons";

/** A modal dialog that gives the focus back when it closes. */
export function Dialog(p: { title: string; class?: string; onClose: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    const dialog = ref.current;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={`dialog ${p.class ?? ""}`}
      aria-label={p.title}
      onCancel={(e) => {
        e.preventDefault();
        p.onClose();
      }}
      onClick={(e) => {
        if (e.target === e.currentTarget) p.onClose();
      }}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2>{p.title}</h2>
          <button type="button" class="button square" aria-label="Close" onClick={p.onClose}>
            <Icon name="close" />
          </button>
        </div>
        {p.children}
      </div>
    </dialog>
  );
}

export function Help() {
  if (!view.help.value) return null;
  const close = () => {
    view.help.value = false;
  };
  return (
    <Dialog title="Keys and help" class="help" onClose={close}>
      <div class="help-grid">
        {KEY_HELP.map((group) => (
          <section key={group.group}>
            <h3>{group.group}</h3>
            <dl>
              {group.keys.map((k) => (
                <div key={k.keys}>
                  <dt>
                    {k.keys.split(" ").map((key) => (
                      <kbd key={key}>{key}</kbd>
                    ))}
                  </dt>
                  <dd>{k.text}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
        <section>
          <h3>Filter</h3>
          <p>
            <code>decision:reject reason:kv tenant:acme session:ab12 code:529 est&gt;4000 !retry</code>
          </p>
          <p class="muted">
            Words: {FILTER_WORDS.words.join(", ")}. Numbers: {FILTER_WORDS.numbers.join(", ")}. Flags:{" "}
            {FILTER_WORDS.flags.join(", ")}. A comma means “or”, ! means “not”.
          </p>
        </section>
      </div>
      <label class="check">
        <input
          type="checkbox"
          checked={view.singleKeys.value}
          onChange={(e) => {
            view.singleKeys.value = e.currentTarget.checked;
          }}
        />
        Single-key shortcuts
      </label>
    </Dialog>
  );
}

interface Command {
  name: string;
  run: () => void;
}

function commands(): Command[] {
  return [
    ...TABS.map((t) => ({ name: `Go to ${t}`, run: () => act.showTab(t) })),
    ...WINDOWS.map((w) => ({
      name: `Window ${windowName(w)}`,
      run: () => {
        view.windowMs.value = w;
      },
    })),
    ...THEMES.map((t) => ({
      name: `Theme ${t}`,
      run: () => {
        view.theme.value = t;
      },
    })),
    { name: view.paused.value ? "Go on live" : "Pause the view", run: act.togglePause },
    ...["decision:reject", "decision:defer", "missed", "retry", "reason:kv"].map((f) => ({
      name: `Filter ${f}`,
      run: () => {
        act.showTab("live");
        view.filterText.value = f;
      },
    })),
    {
      name: "Clear the filter",
      run: () => {
        view.filterText.value = "";
      },
    },
    {
      name: "Charts as a table",
      run: () => {
        view.table.value = !view.table.value;
      },
    },
    {
      name: "Keys and help",
      run: () => {
        view.help.value = true;
      },
    },
    ...(token() === ""
      ? [
          {
            name: "Enter the admin token",
            run: () => {
              view.askToken.value = "write";
            },
          },
        ]
      : [{ name: "Forget the admin token", run: () => setToken("") }]),
  ];
}

export function Palette() {
  const [text, setText] = useState("");
  const [row, setRow] = useState(0);
  if (!view.palette.value) return null;
  const close = () => {
    view.palette.value = false;
    setText("");
    setRow(0);
  };
  const needle = text.toLowerCase();
  const found = commands().filter((c) => c.name.toLowerCase().includes(needle));
  const run = (c: Command | undefined) => {
    close();
    c?.run();
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key === "ArrowDown") setRow(Math.min(found.length - 1, row + 1));
    else if (e.key === "ArrowUp") setRow(Math.max(0, row - 1));
    else if (e.key === "Enter") run(found[row]);
    else return;
    e.preventDefault();
  };
  return (
    <Dialog title="Commands" class="palette" onClose={close}>
      <input
        type="text"
        autofocus
        aria-label="Find a command"
        placeholder="Find a command"
        value={text}
        onInput={(e) => {
          setText(e.currentTarget.value);
          setRow(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul class="commands">
        {found.map((c, i) => (
          <li key={c.name}>
            <button type="button" class={i === row ? "command on" : "command"} onClick={() => run(c)}>
              {c.name}
            </button>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

export function TokenPrompt() {
  const [value, setValue] = useState("");
  const why = view.askToken.value;
  if (why === "") return null;
  const refused = token() !== "";
  return (
    <Dialog
      title="Admin token"
      class="token"
      onClose={() => {
        view.askToken.value = "";
      }}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          act.giveToken(value);
          setValue("");
        }}
      >
        <p>
          {why === "read"
            ? "From this address admitd answers only with its admin token."
            : "Changes need the admin token, from every address."}{" "}
          {refused ? "The one given was refused." : ""}
        </p>
        <label class="field">
          <span>Token</span>
          <input
            type="password"
            autofocus
            autocomplete="off"
            spellcheck={false}
            value={value}
            onInput={(e) => setValue(e.currentTarget.value)}
          />
        </label>
        <p class="muted">
          admitd made it at its first start: <code>admin.token</code> in its state folder, by default{" "}
          <code>~/.local/state/admitd</code>.
        </p>
        <p class="muted">It is kept in this browser tab only, and forgotten when the tab is closed.</p>
        <div class="row">
          <button type="submit" class="button primary" disabled={value.trim() === ""}>
            Use this token
          </button>
        </div>
      </form>
    </Dialog>
  );
}
