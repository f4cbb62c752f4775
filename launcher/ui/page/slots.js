// The table of nodes: the worst first, 200 of them and then more on request.

import { badge, button, cellsOf, clip, el, fill, note, say, scrolls, show, table, toned } from "./dom.js";
import { busyWords } from "./going.js";
import { logOf } from "./store.js";
import { counted, duration } from "./words.js";

const MORE = 200;
const COLUMNS = ["Node", "Host", "State", "How it is", "Progress", "Machine", "Log"];

/** How a slot is, beside what its badge says. */
function wordsOf(slot) {
  const quiet = slot.silent === null ? "" : `silent for ${duration(slot.silent)}`;
  const own = slot.words.startsWith(slot.state) ? slot.words.slice(slot.state.length).replace(/^[,:;] /, "") : slot.words;
  const words = [slot.words.includes(slot.problem) ? "" : slot.problem, own, quiet].filter(Boolean).join("; ");
  return clip(words);
}

function partsOf(slot, ctx) {
  const of = logOf(slot);
  const log = !of ? "" : el("a", { href: ctx.address({ view: "logs", ...of[1] }), "aria-label": `Log of ${of[0]}` }, "log");
  return [
    ctx.store.nameOf(slot),
    el("span", { title: clip(slot.address, 200) }, clip(slot.host, 80) || "not known"),
    slot.mark ? [badge(slot.mark, slot.tone), " ", badge(slot.state, "off")] : badge(slot.state, slot.tone),
    wordsOf(slot),
    clip(slot.progress, 120),
    "",
    log,
  ];
}

/** The table; `update(touched)` draws only what has changed, `busy()` how the machines are. */
export function slotTable(ctx) {
  const { whole, body } = table("Nodes, the worst first", COLUMNS);
  const more = button("", () => {
    most += MORE;
    update();
  });
  const none = note("This run has no nodes yet.", "nothing");
  const box = el("div", { class: "nodes" }, none, scrolls("Nodes", whole), more);
  const rows = new Map();
  let most = MORE;

  function rowOf(slot) {
    const known = rows.get(slot.slot);
    if (known?.slot === slot) return known.row;
    const row = known?.row ?? el("tr");
    row.className = `is-${toned(slot.tone)}${slot.mark ? " is-marked" : ""}${slot.node === null ? " new" : ""}`;
    fill(row, cellsOf(partsOf(slot, ctx)));
    rows.set(slot.slot, { slot, row });
    busyOf({ slot, row });
    return row;
  }

  const busyNow = (slot) => slot.state === "ended" ? null : ctx.store.usage.slots[slot.slot];

  function busyOf({ slot, row }) {
    say(row.children[COLUMNS.indexOf("Machine")], busyWords(busyNow(slot)));
  }

  function update() {
    const all = ctx.store.worstFirst();
    const shown = all.slice(0, most);
    shown.forEach((slot, place) => {
      const row = rowOf(slot);
      if (body.children[place] !== row) body.insertBefore(row, body.children[place] ?? null);
    });
    // A column that says nothing of any node takes no room.
    const empty = [3, 4, 5].filter((at) => shown.every(({ slot }) => !rows.get(slot).row.children[at].textContent));
    whole.className = empty.map((at) => `hides-${at + 1}`).join(" ");
    while (body.children.length > shown.length) body.lastChild.remove();
    const left = all.length - shown.length;
    show(more, left > 0);
    say(more, `Show ${Math.min(MORE, left)} more of ${counted(left, "node")}`);
    show(none, !all.length);
    show(whole.parentElement, all.length > 0);
  }

  update();
  return {
    box,
    update,
    busy() {
      rows.forEach(busyOf);
      update();
    },
  };
}
