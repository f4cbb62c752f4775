// The frame: session, address, tabs, connection; and one run at a time in it.

import { heldSession, holdSession, Kept, Live, openSession } from "./api.js";
import { curvesView } from "./curves.js";
import { button, clip, el, failed, fill, note, say, show, toned } from "./dom.js";
import { keyForm, runList } from "./doors.js";
import { eventsView } from "./events.js";
import { Feed } from "./feed.js";
import { hangView } from "./hang.js";
import { checksView, environmentView, epochsView, machinesView } from "./lists.js";
import { logsView } from "./logs.js";
import { matrixView } from "./matrix.js";
import { nowView } from "./now.js";
import { Store, Touched } from "./store.js";
import { counting } from "./words.js";

/**
 * The views. Each is a function of its place and the run (`ctx`) that fills the place and returns
 * what it can do: update(touched) after changes, tick() each second, resized(), close().
 */
const views = {
  now: ["Now", nowView],
  matrix: ["Matrix", matrixView],
  checks: ["Checks", checksView],
  curves: ["Curves", curvesView],
  logs: ["Logs", logsView],
  hang: ["Hang", hangView],
  machines: ["Machines", machinesView],
  epochs: ["Epochs", epochsView],
  events: ["Events", eventsView],
  environment: ["Environment", environmentView],
};

const at = (id) => document.getElementById(id);
const main = at("main");
const saved = at("saved") ? JSON.parse(at("saved").textContent) : null;
let source = null;
let leave = () => {};
let shown = null; // the run that is open

function route() {
  const found = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return { ...found, view: Object.hasOwn(views, found.view) ? found.view : "now" };
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
    shown = openRun(run);
    leave = shown.close;
  } else {
    ["bar", "tabs"].forEach((id) => show(at(id), false));
    document.title = "Runs – rdzv";
    leave = runList(main, source, address, closed);
  }
}

/** One run: its feed, its tabs, and the view that is open. */
function openRun(run) {
  let view = {};
  let key = null;
  let frame = null;
  let touched = new Touched();
  let heard = 0;
  let lost = null;
  const ctx = {
    run, source, address, closed, store: null, route: {}, actions: source.opened.actions && !saved,
    since: () => (ctx.store.head.over || saved ? 0 : (performance.now() - heard) / 1000),
    elapsed: () => ctx.store.head.elapsed + ctx.since(),
    go: (changes) => { location.hash = address(changes); },
  };
  const noted = () => {
    heard = performance.now();
    title();
  };
  function title() {
    const { head } = ctx.store;
    document.title = `${clip(head.state, 20)}: ${clip(run, 60)} – rdzv`;
    say(at("run"), clip(run, 120));
    say(at("state"), clip(head.state, 40));
    at("state").className = `badge ${toned(head.tone)}`;
    say(at("elapsed"), counting(ctx.elapsed()));
  }
  function open() {
    ctx.route = route();
    if (!ctx.store) return;
    const name = ctx.route.view;
    for (const tab of at("tabs").children) {
      tab.setAttribute("aria-selected", String(tab.id === `tab-${name}`));
      tab.tabIndex = tab.id === `tab-${name}` ? 0 : -1;
    }
    const wanted = location.hash;
    if (key === wanted) return;
    key = wanted;
    view.close?.();
    const place = el("div", { role: "tabpanel", id: "panel", class: `view view-${name}`, "aria-labelledby": `tab-${name}` });
    fill(main, place);
    view = views[name][1](place, ctx);
  }
  function render() {
    frame = null;
    const now = touched;
    touched = new Touched();
    view.update?.(now);
  }
  function tick() {
    if (lost !== null && ctx.store?.head.over) {
      say(at("link"), `The run and the server of this page have ended; what is shown stays. To see it again: rdzv ui ${clip(run, 80)}`);
    } else if (lost !== null) say(at("link"), `Not connected for ${counting((performance.now() - lost.at) / 1000)}, trying again: ${lost.why}`);
    if (!ctx.store || document.hidden) return;
    say(at("elapsed"), counting(ctx.elapsed()));
    view.tick?.();
  }
  const on = {
    state(state) {
      ctx.store = new Store(state);
      key = null;
      noted();
      ["bar", "tabs"].forEach((id) => show(at(id), true));
      open();
    },
    change(change) {
      ctx.store.apply(change, touched);
      if (change.head) noted();
      frame ??= requestAnimationFrame(render);
    },
    link(up, error) {
      show(at("link"), !up);
      const since = lost?.at ?? performance.now();
      lost = up ? null : { at: since, why: clip([error.message, error.hint].filter(Boolean).join("; try: ")) };
      if (!up) tick();
    },
    closed,
    failed(error) {
      fill(main, failed(`run '${clip(run, 80)}'`, error, () => {
        shown = null;
        draw();
      }));
    },
  };
  const timer = setInterval(tick, 1000);
  let narrow = 0;
  const resized = () => {
    if (narrow === main.clientWidth) return;
    narrow = main.clientWidth;
    view.resized?.();
  };
  const shape = new ResizeObserver(resized);
  shape.observe(main);
  if (saved) on.state(saved.state);
  else {
    fill(main, note(`Loading run '${clip(run, 80)}' …`, "loading", { role: "status" }));
    ctx.feed = new Feed(source, run, on);
  }
  return {
    run,
    open,
    resized: () => view.resized?.(),
    close() {
      clearInterval(timer);
      cancelAnimationFrame(frame);
      shape.disconnect();
      ctx.feed?.stop();
      view.close?.();
    },
  };
}

function makeTabs() {
  const names = Object.keys(views);
  const tabs = names.map((name) => button(views[name][0], () => { location.hash = address({ view: name }); },
    { role: "tab", id: `tab-${name}`, "aria-controls": "panel" }));
  fill(at("tabs"), tabs);
  at("tabs").addEventListener("keydown", (event) => {
    const now = tabs.indexOf(document.activeElement);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
    if (now < 0 || next === undefined) return;
    event.preventDefault();
    tabs[next % tabs.length].focus();
    tabs[next % tabs.length].click();
  });
}

/** Dark or light, as the system has it until somebody chooses; what cannot be kept is lost. */
function makeTheme() {
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    shown?.resized();
  };
  try {
    set(localStorage.getItem("rdzv-theme") ?? "");
  } catch {
    // as the system has it
  }
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", () => shown?.resized());
  at("theme").addEventListener("click", () => {
    const dark = (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
    set(dark ? "light" : "dark");
    try {
      localStorage.setItem("rdzv-theme", dark ? "light" : "dark");
    } catch {
      // only this page is
    }
  });
}

async function start() {
  makeTabs();
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
    closed(`${error.message}. A link works once, and not for long.`);
  }
}

start();
