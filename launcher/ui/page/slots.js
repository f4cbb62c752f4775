// The table of nodes: the worst first, 200 of them and then more on request.

import { badge, button, cellsOf, clip, el, fill, note, say, scrolls, show, table, toned } from "./dom.js";
import { FEATURES } from "./features.js";
import { logOf } from "./store.js";
import { counted, duration } from "./words.js";

const MORE = 200;
const COLUMNS = ["Node", "Host", "State", "How it is", "Progress"];

/** How a slot is, beside what its badge says. */
function wordsOf(slot) {
  const quiet = slot.silent === null ? "" : `silent for ${duration(slot.silent)}`;
  const own = slot.words.startsWith(slot.state) ? slot.words.slice(slot.state.length).replace(/^[,:;] /, "") : slot.words;
  const words = [slot.words.includes(slot.problem) ? "" : slot.problem, own, quiet].filter(Boolean).join("; ");
  return clip(words);
}

function partsOf(slot, ctx, more) {
  const of = logOf(slot);
  const log = !of ? "" : el("a", { href: ctx.address({ view: "logs", ...of[1] }), "aria-label": `Log of ${of[0]}` }, "log");
  return [
    ctx.store.nameOf(slot),
    el("span", { title: clip(slot.address, 200) }, clip(slot.host, 80) || "not known"),
    slot.mark ? [badge(slot.mark, slot.tone), " ", badge(slot.state, "off")] : badge(slot.state, slot.tone),
    wordsOf(slot),
    clip(slot.progress, 120),
    ...more.map(() => ""),
    log,
  ];
}

/** The table; `update()` draws only what has changed, `columns(touched)` those of features. */
export function slotTable(ctx) {
  const own = FEATURES.filter((one) => one.column);
  const { whole, body } = table("Nodes, the worst first", [...COLUMNS, ...own.map((one) => one.column.title), "Log"]);
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
    fill(row, cellsOf(partsOf(slot, ctx, own)));
    rows.set(slot.slot, { slot, row });
    ofFeatures({ slot, row });
    return row;
  }

  function ofFeatures({ slot, row }) {
    own.forEach(({ column }, at) => say(row.children[COLUMNS.length + at], column.words(slot, ctx.store)));
  }

  function update() {
    const all = ctx.store.worstFirst();
    const shown = all.slice(0, most);
    shown.forEach((slot, place) => {
      const row = rowOf(slot);
      if (body.children[place] !== row) body.insertBefore(row, body.children[place] ?? null);
    });
    // A column that says nothing of any node takes no room.
    const empty = [3, 4, ...own.map((_, at) => COLUMNS.length + at)].filter((at) => shown.every(({ slot }) => !rows.get(slot).row.children[at].textContent));
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
    columns(touched) {
      if (!own.some(({ name }) => touched.parts.has(name))) return;
      rows.forEach(ofFeatures);
      update();
    },
  };
}
