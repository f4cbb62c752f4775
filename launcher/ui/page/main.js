// The frame: session, address, tabs and theme; and one run at a time in it.

import { heldSession, holdSession, Kept, Live, openSession } from "./api.js";
import { say, show } from "./dom.js";
import { keyForm, runList } from "./doors.js";
import { openRun, VIEWS } from "./run.js";
import { makeTabs } from "./tabs.js";

const at = (id) => document.getElementById(id);
const main = at("main");
const saved = at("saved") ? JSON.parse(at("saved").textContent) : null;
let source = null;
let leave = () => {};
let shown = null; // the run that is open

function route() {
  const found = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return { ...found, view: Object.hasOwn(VIEWS, found.view) ? found.view : "now" };
}

/** The address of this page with these parts of it changed; null takes one out. */
function address(changes) {
  const parts = { ...route(), ...changes };
  const left = Object.entries(parts).filter(([name, part]) => name !== "t" && part != null && part !== "");
  return `#${new URLSearchParams(left.map(([name, part]) => [name, String(part)]))}`;
}

/** That the session is over: back to the form. */
function closed(why = "Your session has ended.") {
  leave();
  shown = null;
  holdSession(null);
  source = null;
  document.title = "rdzv";
  ["bar", "tabs", "link", "runs"].forEach((id) => show(at(id), false));
  keyForm(main, why, begin);
}

function begin(opened) {
  holdSession(opened);
  source = new Live(opened);
  if (opened.run && !route().run) history.replaceState(null, "", address({ run: opened.run }));
  draw();
}

function again() {
  leave();
  shown = null;
  draw();
}

/** Show what the address names. */
function draw() {
  if (!source) return;
  const { run } = route();
  show(at("runs"), !saved && Boolean(run));
  if (shown && shown.run === run) return shown.open();
  leave();
  shown = null;
  show(at("link"), false);
  if (run) {
    shown = openRun(source, run, { route, address, closed, again });
    leave = shown.close;
  } else {
    ["bar", "tabs"].forEach((id) => show(at(id), false));
    document.title = "Runs – rdzv";
    leave = runList(main, source, address, closed);
  }
}

/** Dark or light, as the system has it until somebody chooses; what cannot be kept is lost. */
function makeTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const changed = () => {
    say(at("theme"), `Theme: ${isDark() ? "dark" : "light"}`);
    shown?.resized();
  };
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    changed();
  };
  try {
    set(localStorage.getItem("rdzv-theme") ?? "");
  } catch {
    changed(); // as the system has it
  }
  system.addEventListener("change", changed);
  at("theme").addEventListener("click", () => {
    const dark = isDark();
    set(dark ? "light" : "dark");
    try {
      localStorage.setItem("rdzv-theme", dark ? "light" : "dark");
    } catch {
      // only this page is
    }
  });
}

async function start() {
  makeTabs(at("tabs"), VIEWS, (name) => { location.hash = address({ view: name }); });
  makeTheme();
  at("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  addEventListener("hashchange", () => (route().t ? enter() : draw()));
  await enter();
}

async function enter() {
  const { t: ticket } = route();
  if (ticket) history.replaceState(null, "", address({}));
  if (saved) {
    say(at("saved-at"), `Saved at ${saved.saved_at} by rdzv ${saved.version}; nothing here changes any more.`);
    show(at("saved-at"), true);
    source = new Kept(saved);
    if (!route().run) history.replaceState(null, "", address({ run: saved.state.head.run }));
    return draw();
  }
  const held = heldSession();
  if (!ticket) return held ? begin(held) : closed("");
  try {
    begin(await openSession({ ticket }));
  } catch (error) {
    if (held) begin(held); // an old link in a tab that is open already
    else closed(`${error.message}. A link works once, and not for long.`);
  }
}

start();
