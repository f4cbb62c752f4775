// What the programs print: the newest lines, and those that come.

import { button, choice, clip, el, field, fill, note, say, toned } from "./dom.js";
import { errorButton, Pane } from "./logpane.js";
import { logOf } from "./store.js";

const MOST_AT_FIRST = 12000; // lines of all ranks together
const MOST_OF_EACH = 1000;
const LEAST_OF_EACH = 20;
const MOST_NODES = 64; // of more, a node has to be chosen: all of them would send their lines
const MOST_CHIPS = 32;
const MOST_TEXTS = 8;
const AGAIN_MS = 3000;
const TYPING_MS = 300;
const QUIET_MS = 2000;
const NOTHING = "No line matches, or nothing was printed.";
const TIMELESS = " Lines without a time appear in the order in which they came.";
const LEVELS = [["", "all levels"], ["warning", "warnings and errors"], ["error", "errors"]];

/** How many ranks there are on some nodes. */
function ranksOf(nodes) {
  return nodes.reduce((sum, slot) => sum + slot.processes, 0);
}

/** Which lines are asked for: of one log, or of all that the chosen nodes have. */
function whichLines(ctx, { rank, node }) {
  const nodes = ctx.store.nodes().filter((slot) => node === "" || slot.node === Number(node));
  const all = rank === "" && nodes.length <= MOST_NODES;
  const each = Math.floor(MOST_AT_FIRST / Math.max(1, ranksOf(nodes)));
  const lines = rank !== "" ? MOST_OF_EACH : all ? Math.min(MOST_OF_EACH, Math.max(LEAST_OF_EACH, each)) : 200;
  return { rank, node, all, lines };
}

/** A radio group of ranks, or a field for the number where they are many. */
function rankControl(ctx, rank) {
  const count = ranksOf(ctx.store.nodes());
  const go = (chosen) => ctx.go({ rank: chosen, node: null });
  if (count > MOST_CHIPS || !count) {
    const input = el("input", { type: "number", min: "0", value: rank, placeholder: "all", on: {
      change: () => go(input.value === "" ? null : Number(input.value)) } });
    return field("Rank", input);
  }
  const { mark, tone, suspect } = ctx.store.culprit() ?? {};
  const chips = [null, ...Array(count).keys()].map((one) =>
    button(one === null ? "all ranks" : `${one}`, () => go(one), {
      class: `chip ${one === suspect && mark ? toned(tone) : ""}`, "aria-pressed": String(String(one ?? "") === rank),
      "aria-label": one === null ? false : `rank ${one}${one === suspect ? `, ${mark}` : ""}` }));
  return el("div", { class: "chips", role: "group", "aria-label": "Rank" }, chips);
}

/** See `VIEWS` in run.js. */
export function logsView(place, ctx) {
  const { rank = "", node = "" } = ctx.route;
  const { saved } = ctx.source;
  const blamed = () => logOf(ctx.store.culprit() ?? {})?.[0] ?? "";
  let last = blamed();
  const pane = new Pane((errors, own) => first.update(errors, own && rank === "" ? ` of ${last}` : ""),
    (source) => ctx.store.culpritOf(source), rank === "");
  const first = errorButton(place, () => pane.toFirstError());
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
    const values = { ...whichLines(ctx, { rank, node }), epoch: asked.epoch, grep: texts(), level: asked.level, follow };
    const waited = setTimeout(() => say(state, "No line has come yet; new lines appear here."), QUIET_MS);
    let [found, timeless] = [false, ""];
    try {
      for await (const { source = "", lines = [], at, kinds, note: said = "", over } of ctx.source.lines(ctx.run, "logs", values, signal)) {
        if (signal.aborted) return true;
        if (lines.length || said) {
          if (!found) pane.clear();
          found = true;
          clearTimeout(waited);
          if (source && !at && values.all) timeless = TIMELESS;
          say(state, follow ? `New lines appear at the end.${timeless}` : timeless.trim());
          pane.take(source, lines, at, kinds);
          if (said) pane.take("", [said], null, "s");
        }
        if (over) {
          say(state, found ? `End of the log.${timeless}` : NOTHING);
          return true;
        }
      }
      if (!found) say(state, NOTHING);
      return !follow;
    } finally {
      clearTimeout(waited);
    }
  }

  async function read(signal) {
    pane.clear();
    say(state, "Loading the log …");
    for (let begins = true; !signal.aborted; begins = false) {
      const follow = asked.follow && !saved && !ctx.store.head.over;
      // Where a proxy holds back streams, the newest lines are asked for again and again.
      const polls = follow && ctx.feed?.polls;
      try {
        if (!begins && !polls && !ctx.store.head.over) say(state, "Not connected; trying again.");
        if ((await once(signal, follow && !polls)) && !polls) return;
      } catch (error) {
        if (signal.aborted || error.name === "AbortError") return;
        if (error.status === 401) return ctx.closed();
        const hint = error.hint ? `; try: ${clip(error.hint)}` : "";
        // The server of `launch --ui` ends with its run, and no tunnel is at fault.
        if (!error.status && ctx.store.head.over) say(state, ctx.ended(`rdzv logs ${clip(ctx.run, 80)}`));
        else say(state, `Could not load the log: ${clip(error.message)}${hint}`);
        if (error.status >= 400 && error.status < 500) return;
      }
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }

  const filter = el("input", { type: "search", autocomplete: "off", value: asked.grep,
    placeholder: "lines with: loss, nan", "aria-label": "Only lines with one of", on: { input: () => {
      asked.grep = filter.value;
      clearTimeout(typing);
      typing = setTimeout(restart, TYPING_MS);
    } } });
  const follow = el("input", { type: "checkbox", checked: asked.follow, on: { change: () => set("follow")(follow.checked) } });
  const nodes = ctx.store.nodes().map((slot) => [slot.node, `node ${slot.node} ${slot.host}`]);
  const { epoch } = ctx.store.head;
  const epochs = Array.from({ length: Math.min(epoch, 32) }, (_, back) => [epoch - back, `epoch ${epoch - back}`]);
  fill(place, el("div", { class: "controls" },
    rankControl(ctx, rank),
    choice([["", "all nodes"], ...nodes], node, (one) => ctx.go({ node: one === "" ? null : one, rank: null }), "Node"),
    saved ? null : choice(LEVELS, asked.level, set("level"), "Level"),
    !saved && epoch > 1 ? choice([["", "newest epoch"], ...epochs], asked.epoch, set("epoch"), "Epoch") : null,
    saved || ctx.store.head.over ? null : field("Follow", follow),
    filter, first.made, state), pane.box);
  restart();
  return {
    update() {
      if (last === (last = blamed())) return;
      place.querySelector(".chips")?.replaceWith(rankControl(ctx, rank));
      pane.marked();
    },
    close() {
      clearTimeout(typing);
      abort.abort();
      pane.close();
    },
  };
}
