// The views that are a list of what one request brings: checks, machines, epochs, environment.

import { badge, choice, clip, el, field, fill, loaded, say, scrolls, section, show, table } from "./dom.js";
import { counted, duration } from "./words.js";

const TONES = { fail: "bad", warn: "wait", ok: "good" };
const MORE_CARDS = 100;

/** See `views` in main.js. */
export function checksView(place, ctx) {
  const again = loaded(place, "the checks", () => ctx.source.get(ctx.run, "checks"),
    (found) => found.findings.length ? "" : found.total || "Nothing was checked yet.",
    (found) => {
      const { whole, body } = table("What was checked before the start, the worst first", ["Result", "Check", "What was found"]);
      body.append(...found.findings.map((one) => el("tr", {},
        el("td", {}, badge(one.level, TONES[one.level])), el("td", {}, clip(one.check, 80)),
        el("td", {}, clip(one.text, 1000), one.fix ? el("p", { class: "next" }, `try: ${clip(one.fix, 1000)}`) : null))));
      return [el("p", {}, clip(found.total)), scrolls("Checks", whole)];
    });
  again();
  let phase = ctx.store.head.state;
  return {
    update(touched) {
      if (!touched.head || ctx.store.head.state === phase) return;
      phase = ctx.store.head.state;
      again();
    },
  };
}

/** See `views` in main.js. */
export function machinesView(place, ctx) {
  loaded(place, "the machines", () => ctx.source.get(ctx.run, "machines"),
    (found) => found.length ? "" : "No node has joined yet, so no machine is known.",
    (found) => {
      // Most runs have the same facts of each machine: their names are the columns.
      const names = [...new Set(found.flatMap((machine) => machine.facts.map(([name]) => name)))];
      const { whole, body } = table("Machines of the nodes", ["Slot", "Rank", "Node", ...names.map((name) => clip(name, 60))]);
      const rows = found.map((machine) => {
        const facts = new Map(machine.facts);
        return el("tr", {}, [machine.slot, machine.rank ?? "", clip(machine.host, 80), ...names.map((name) =>
          clip(facts.get(name), 200))].map((cell) => el("td", {}, cell)));
      });
      body.append(...rows.slice(0, MORE_CARDS));
      const rest = rows.slice(MORE_CARDS);
      const more = el("button", { type: "button", on: { click: () => {
        body.append(...rest.splice(0, MORE_CARDS));
        show(more, rest.length > 0);
      } } }, `Show ${MORE_CARDS} more`);
      show(more, rest.length > 0);
      return [scrolls("Machines", whole), more];
    })();
  return {};
}

/** See `views` in main.js. */
export function epochsView(place, ctx) {
  function draw() {
    const { head, epochs } = ctx.store;
    const now = head.over ? `Epoch ${head.epoch} was the last one.` : `Epoch ${head.epoch} is in progress.`;
    const used = head.max_restarts ? ` ${head.restarts} of ${counted(head.max_restarts, "restart")} used.` : "";
    const ended = [...epochs].reverse().map((one) => section(`Epoch ${one.epoch}`,
      el("p", {}, clip(one.words, 1000)),
      el("p", {}, `Its programs ran for ${duration(one.ran_seconds)}; exit code ${one.exit_code}. ${clip(one.then, 500)}`),
      one.evidence.length ? el("ul", {}, one.evidence.map((line) => el("li", {}, clip(line)))) : null));
    fill(place, el("p", { class: "current" }, now, used), ended.length ? ended
      : el("p", { class: "note nothing" }, "No earlier epoch: the programs were not started a second time."));
  }
  draw();
  return { update: (touched) => (touched.epochs || touched.head) && draw() };
}

/** See `views` in main.js. */
export function environmentView(place, ctx) {
  const nodes = ctx.store.nodes();
  if (!nodes.length) {
    fill(place, el("p", { class: "note nothing" }, "No node has a rank yet; its environment is known once the run starts."));
    return {};
  }
  const node = nodes.some((slot) => slot.rank === Number(ctx.route.node)) ? Number(ctx.route.node) : nodes[0].rank;
  const filter = el("input", { type: "search", autocomplete: "off", on: { input: () => apply() } });
  const box = el("div");
  const count = el("p", { "aria-live": "polite" });
  let rows = [];
  const apply = () => {
    const words = filter.value.toLowerCase();
    rows.forEach(({ row, text }) => show(row, text.includes(words)));
    say(count, `${counted(rows.filter(({ row }) => !row.hidden).length, "variable")} shown`);
  };
  fill(place, el("div", { class: "controls" },
    field("Node", choice(nodes.map((slot) => [slot.rank, `${slot.rank} ${slot.host}`]), node,
      (rank) => ctx.go({ node: rank }))),
    field("Only what contains", filter)), count, box);
  loaded(box, `the environment of node ${node}`, () => ctx.source.get(ctx.run, "environment", { node }),
    (found) => found.variables.length ? "" : "rdzv sets no variable on this node.",
    (found) => {
      const { whole, body } = table(`Variables of node ${node}`, ["Name", "Value", "Why"]);
      rows = found.variables.map((one) => ({
        text: `${one.name} ${one.value} ${one.reason}`.toLowerCase(),
        row: el("tr", {}, el("td", {}, el("code", {}, clip(one.name, 120))),
          el("td", {}, el("code", {}, clip(one.value, 1000))), el("td", {}, clip(one.reason, 1000))),
      }));
      body.append(...rows.map(({ row }) => row));
      apply();
      return [el("p", {}, clip([found.host, found.transport].filter(Boolean).join("; "))), scrolls("Variables", whole),
        found.table ? section("Table of nodes", el("pre", { tabindex: "0" }, found.table)) : null];
    })();
  return {};
}
