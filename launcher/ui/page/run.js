// One run: its connection, and the view of it that is open.

import { clean, clip, el, failed, fill, note, say, show, toned } from "./dom.js";
import { eventsView } from "./events.js";
import { each } from "./features.js";
import { Feed } from "./feed.js";
import { checksView, environmentView, epochsView } from "./lists.js";
import { logsView } from "./logs.js";
import { matrixView } from "./matrix.js";
import { nowView } from "./now.js";
import { Store, Touched } from "./store.js";
import { labelTabs, selectTab } from "./tabs.js";
import { counting } from "./words.js";

/**
 * The views. Each is a function of its place and the run (`ctx`) that fills the place and returns
 * what it can do: update(touched) after changes, tick() each second, resized(), close(). After it comes
 * what CONTENT in tabs.js has of others, and the class of a tab that has content.
 */
const tabs = Object.entries({
  now: ["Now", nowView],
  logs: ["Logs", logsView],
  checks: ["Checks", checksView],
  matrix: ["Matrix", matrixView],
  epochs: ["Epochs", epochsView],
  events: ["Events", eventsView],
  environment: ["Environment", environmentView],
});
each(({ tab }) => tab && tabs.splice(tabs.findIndex(([name]) => tab.before.includes(name)), 0, [tab.name, tab.entry]));
export const VIEWS = Object.fromEntries(tabs);

const at = (id) => document.getElementById(id);
const main = at("main");

/**
 * Show a run.
 *
 * `frame` has route() and address(changes) of the page, closed() for a session that is over, and
 * again() to open the run a second time. Returns open() for another view, resized(), close().
 */
export function openRun(source, run, { route, address, closed, again }) {
  let view = {};
  let key = null;
  let drawing = null;
  let touched = new Touched();
  let heard = 0;
  let lost = null;
  const ctx = {
    run, source, address, closed, store: null, route: {}, actions: source.opened.actions,
    get: (what, values) => source.get(run, what, values),
    since: () => (ctx.store.head.over || source.saved ? 0 : (performance.now() - heard) / 1000),
    elapsed: () => ctx.store.head.elapsed + ctx.since(),
    /** That nothing more comes, as the run is over and the server of this page gone. */
    ended: (next) => `The run has ended, and the server of this page with it; what is shown stays.${next && ` Try: ${next}`}`,
    go: (changes) => { location.hash = address(changes); },
  };
  const noted = () => {
    heard = performance.now();
    title();
  };
  const clock = () => say(at("elapsed"), `${ctx.store.head.over ? "took " : ""}${counting(ctx.elapsed())}`);
  const label = () => labelTabs(at("tabs"), VIEWS, ctx.store);
  function title() {
    const { head } = ctx.store;
    document.title = clean(`${clip(head.state, 20)}: ${clip(run, 60)} – rdzv`);
    say(at("run"), clip(run, 120));
    say(at("state"), clip(head.state, 40));
    at("state").className = `badge ${toned(head.tone)}`;
    clock();
  }
  function open() {
    ctx.route = route();
    if (!ctx.store) return;
    const name = ctx.route.view;
    selectTab(at("tabs"), name);
    const wanted = location.hash;
    if (key === wanted) return;
    key = wanted;
    view.close?.();
    const place = el("div", { role: "tabpanel", id: "panel", class: `view view-${name}`, "aria-labelledby": `tab-${name}` });
    fill(main, place);
    view = VIEWS[name][1](place, ctx);
  }
  function render() {
    drawing = null;
    const now = touched;
    touched = new Touched();
    if (now.head) label();
    view.update?.(now);
  }
  function tick() {
    const head = ctx.store?.head;
    if (lost !== null) say(at("link"), head?.over ? ctx.ended(clip(head.next_step, 1000))
      : `Not connected for ${counting((performance.now() - lost.at) / 1000)}, trying again: ${lost.why}`);
    if (!ctx.store || document.hidden) return;
    clock();
    label();
    view.tick?.();
  }
  const on = {
    state(state) {
      ctx.store = new Store(state);
      key = null;
      noted();
      ["bar", "tabs"].forEach((id) => show(at(id), true));
      label();
      open();
    },
    change(change) {
      ctx.store.apply(change, touched);
      if (change.head) noted();
      drawing ??= requestAnimationFrame(render);
    },
    link(up, error) {
      show(at("link"), !up);
      const since = lost?.at ?? performance.now();
      lost = up ? null : { at: since, why: clip([error.message, error.hint].filter(Boolean).join("; try: ")) };
      if (!up) tick();
    },
    closed,
    failed(error) {
      fill(main, failed(`run '${clip(run, 80)}'`, error, again));
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
  if (source.saved) on.state(source.saved.state);
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
      cancelAnimationFrame(drawing);
      shape.disconnect();
      ctx.feed?.stop();
      view.close?.();
    },
  };
}
