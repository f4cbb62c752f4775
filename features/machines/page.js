// Machines: how busy they are, beside how it goes and for each node; and the view of each one's facts.

import { button, clip, eachPhase, loaded, row, scrolls, show, table } from "../../launcher/ui/page/dom.js";
import { FEATURES } from "../../launcher/ui/page/features.js";
import { span } from "../../launcher/ui/page/going.js";
import { grouped } from "../../launcher/ui/page/words.js";

const KINDS = ["CPU load", "Memory", "GPU", "GPU memory"];
const MOST_POINTS = 120; // an hour of them
const MORE = 100;
const AGAIN_TICKS = 10; // a node reports each 30 s, the first time a moment after its program starts

/** `CPU load 43 %, Memory 61 %` of one machine. */
function busyWords(busy) {
  return (busy ?? []).map((one, kind) => one === null ? "" : `${KINDS[kind]} ${one} %`)
    .filter(Boolean).join(", ");
}

function tiles({ store }) {
  const usage = store.parts.machines;
  if (!usage || store.head.over) return [];
  return KINDS.map((name, kind) => {
    const now = span(Object.values(usage.slots).map((one) => one[kind]));
    return [name, `${usage.lines[kind].at(-1)} %`, now.includes("to") ? `${now} by node` : "", usage.lines[kind]];
  }).filter(([, , , line]) => line.at(-1) != null);
}

/** How many nodes there are; null: none. */
function counted(store) {
  const { length } = store.nodes();
  return length ? grouped(length) : null;
}

/** See `VIEWS` in run.js. */
function machinesView(place, ctx) {
  let most = MORE;
  let ticks = 0;
  const again = loaded(place, "the machines", () => ctx.get("machines"),
    (found) => {
      if (found.length) return "";
      const over = ctx.store.head.over;
      return over ? "How its machines were is not kept of this run." : "No node has joined yet, so no machine is known.";
    },
    (found) => {
      // Most runs have the same facts of each machine: their names are the columns.
      const names = [...new Set(found.flatMap((machine) => machine.facts.map(([name]) => name)))];
      const { whole, body } = table("Machines of the nodes", ["Node", "Host", ...names.map((name) => clip(name, 60))]);
      const rows = found.map((machine) => {
        const facts = new Map(machine.facts);
        return row([ctx.store.nameOf(machine), clip(machine.host, 80), ...names.map((name) => clip(facts.get(name), 200))]);
      });
      const reveal = () => {
        body.append(...rows.slice(body.children.length, most));
        show(more, rows.length > most);
      };
      const more = button(`Show ${MORE} more`, () => {
        most += MORE;
        reveal();
      });
      reveal();
      return [scrolls("Machines", whole), more];
    });
  again();
  return {
    update: eachPhase(ctx, again),
    tick() {
      ticks += 1;
      const reads = place.contains(document.activeElement); // what has the focus is not taken away
      if (ticks % AGAIN_TICKS === 0 && !ctx.store.head.over && !reads) again();
    },
  };
}

FEATURES.push({
  name: "machines",
  merge(known, { points, slots }) {
    const all = [...known?.points ?? [], ...points].slice(-MOST_POINTS);
    return { points: all, slots, lines: KINDS.map((_, kind) => all.map((point) => point[kind + 1])) };
  },
  tab: { name: "machines", before: ["epochs"], entry: ["Machines", machinesView, counted] },
  tiles,
  column: { title: "Machine", words: (slot, { parts }) => slot.state === "ended" ? "" : busyWords(parts.machines?.slots[slot.slot]) },
});
