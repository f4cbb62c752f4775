// What the programs print: the newest lines, and those that come.

import { add, button, choice, clip, el, field, fill, note, say } from "./dom.js";

const MOST_LINES = 5000;
const MOST_CHIPS = 32;
const MOST_TEXTS = 8;
const AGAIN_MS = 3000;
const TYPING_MS = 300;
const QUIET_MS = 2000;
const LEVELS = [["", "all"], ["warning", "warnings and errors"], ["error", "errors"]];

/** One stream of lines at a time into one pane, which sticks to its end only where the reader is. */
class Pane {
  #held = [];

  constructor() {
    this.box = el("div", { class: "log", role: "log", tabindex: "0", "aria-label": "Log", "aria-live": "off" });
  }

  clear() {
    this.#held = [];
    this.box.replaceChildren();
  }

  take(lines, kind = "") {
    if (!this.#held.length) requestAnimationFrame(() => this.#flush());
    for (const line of lines) this.#held.push([clip(line, 16384), kind]);
    if (this.#held.length > MOST_LINES) this.#held.splice(0, this.#held.length - MOST_LINES);
  }

  #flush() {
    const { box } = this;
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    add(box, this.#held.map(([line, kind]) => el("div", { class: kind || false }, line || " ")));
    this.#held = [];
    while (box.childElementCount > MOST_LINES) box.firstChild.remove();
    if (follows) box.scrollTop = box.scrollHeight;
  }
}

/** A radio group of ranks, or a field for the number where they are many. */
function rankControl(ctx, rank) {
  const count = ctx.store.nodes().reduce((sum, slot) => sum + slot.processes, 0);
  const go = (chosen) => ctx.go({ rank: chosen, node: null });
  if (count > MOST_CHIPS || !count) {
    const input = el("input", { type: "number", min: "0", value: rank, placeholder: "all", on: {
      change: () => go(input.value === "" ? null : Number(input.value)) } });
    return field("Rank", input);
  }
  const chips = [null, ...Array(count).keys()].map((one) =>
    button(one === null ? "all ranks" : `${one}`, () => go(one), {
      class: "chip", "aria-pressed": String(String(one ?? "") === rank), "aria-label": one === null ? false : `rank ${one}` }));
  return el("div", { class: "chips", role: "group", "aria-label": "Rank" }, chips);
}

/** See `VIEWS` in run.js. */
export function logsView(place, ctx) {
  const { rank = "", node = "" } = ctx.route;
  const { saved } = ctx.source;
  const pane = new Pane();
  const state = note("", "", { role: "status" });
  // What is chosen here stays chosen while the reader goes from rank to rank.
  const asked = (ctx.asked ??= { level: "", grep: "", epoch: "", follow: true });
  let typing = null;
  let abort = null;

  const restart = () => {
    abort?.abort();
    abort = new AbortController();
    read(abort.signal);
  };
  const set = (name) => (chosen) => {
    asked[name] = chosen;
    restart();
  };
  const texts = () => asked.grep.split(",").map((word) => word.trim()).filter(Boolean).slice(0, MOST_TEXTS);

  /** Show one answer to its end; whether nothing more is to be asked. */
  async function once(signal, follow) {
    const values = { rank, node, epoch: asked.epoch, grep: texts(), level: asked.level, lines: rank === "" ? 200 : 1000, follow };
    const waited = setTimeout(() => say(state, "No line has come yet; new lines appear here."), QUIET_MS);
    let found = false;
    try {
      for await (const { source = "", lines = [], note: said = "", over } of ctx.source.lines(ctx.run, "logs", values, signal)) {
        if (signal.aborted) return true;
        if (lines.length || said) {
          if (!found) pane.clear();
          found = true;
          clearTimeout(waited);
          say(state, follow ? "New lines appear at the end." : "");
          pane.take(rank === "" && source ? lines.map((line) => `[${source}] ${line}`) : lines);
          if (said) pane.take([said], "said");
        }
        if (over) {
          say(state, found ? "That is all; nothing more comes." : "No line matches, or nothing was printed.");
          return true;
        }
      }
      if (!found) say(state, "No line matches, or nothing was printed.");
      return !follow;
    } finally {
      clearTimeout(waited);
    }
  }

  async function read(signal) {
    pane.clear();
    say(state, "Loading the log …");
    for (let first = true; !signal.aborted; first = false) {
      const follow = asked.follow && !saved && !ctx.store.head.over;
      // Where a proxy holds back streams, the newest lines are asked for again and again.
      const polls = follow && ctx.feed?.polls;
      try {
        if (!first && !polls) say(state, "Not connected; trying again.");
        if ((await once(signal, follow && !polls)) && !polls) return;
      } catch (error) {
        if (signal.aborted || error.name === "AbortError") return;
        if (error.status === 401) return ctx.closed();
        say(state, `Could not load the log: ${clip(error.message)}${error.hint ? `; try: ${clip(error.hint)}` : ""}`);
        if (error.status >= 400 && error.status < 500) return;
      }
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }

  const filter = el("input", { type: "search", autocomplete: "off", placeholder: "loss, nan", value: asked.grep, on: { input: () => {
    asked.grep = filter.value;
    clearTimeout(typing);
    typing = setTimeout(restart, TYPING_MS);
  } } });
  const follow = el("input", { type: "checkbox", checked: asked.follow, on: { change: () => set("follow")(follow.checked) } });
  const nodes = ctx.store.nodes().map((slot) => [slot.node, `${slot.node} ${slot.host}`]);
  const { epoch } = ctx.store.head;
  const epochs = Array.from({ length: Math.min(epoch, 32) }, (_, back) => [epoch - back, `${epoch - back}`]);
  fill(place, el("div", { class: "controls" },
    rankControl(ctx, rank),
    field("Node", choice([["", "all"], ...nodes], node, (one) => ctx.go({ node: one === "" ? null : one, rank: null }))),
    field("Only lines with one of", filter),
    saved ? null : field("Level", choice(LEVELS, asked.level, set("level"))),
    !saved && epoch > 1 ? field("Epoch", choice([["", "newest"], ...epochs], asked.epoch, set("epoch"))) : null,
    saved ? null : field("Follow", follow)), state, pane.box);
  restart();
  return {
    close() {
      clearTimeout(typing);
      abort.abort();
    },
  };
}
