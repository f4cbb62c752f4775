// The table of slots: the worst first, 200 of them and then more on request.

import { badge, button, cellsOf, clip, el, fill, note, say, scrolls, show, table, toned } from "./dom.js";
import { counted, duration } from "./words.js";

const MORE = 200;
const COLUMNS = ["Slot", "Node", "Host", "State", "How it is", "Progress", "Log"];

function partsOf(slot, ctx) {
  const quiet = slot.silent === null ? "" : `silent for ${duration(slot.silent)}`;
  const words = [slot.words.includes(slot.problem) ? "" : slot.problem, slot.words, quiet].filter(Boolean).join("; ");
  const log = slot.node === null ? "" : el("a", { href: ctx.address({ view: "logs", node: slot.node, rank: null }),
    "aria-label": `Log of node ${slot.node}` }, "log");
  return [
    slot.slot,
    slot.node ?? "",
    el("span", { title: clip(slot.address, 200) }, clip(slot.host, 80) || "not known"),
    slot.mark ? [badge(slot.mark, "bad"), " ", badge(slot.state, slot.tone)] : badge(slot.state, slot.tone),
    clip(words),
    clip(slot.progress, 120),
    log,
  ];
}

/** The table; `update(touched)` draws only what has changed. */
export function slotTable(ctx) {
  const { whole, body } = table("Slots, the worst first", COLUMNS);
  const more = button("", () => {
    most += MORE;
    update();
  });
  const none = note("This run has no slots yet.", "nothing");
  const box = el("div", {}, none, scrolls("Slots", whole), more);
  const rows = new Map();
  let most = MORE;

  function rowOf(slot) {
    const known = rows.get(slot.slot);
    if (known?.slot === slot) return known.row;
    const row = known?.row ?? el("tr");
    row.className = `is-${toned(slot.tone)}`;
    fill(row, cellsOf(partsOf(slot, ctx)));
    rows.set(slot.slot, { slot, row });
    return row;
  }

  function update() {
    const all = ctx.store.worstFirst();
    const shown = all.slice(0, most);
    shown.forEach((slot, place) => {
      const row = rowOf(slot);
      if (body.children[place] !== row) body.insertBefore(row, body.children[place] ?? null);
    });
    while (body.children.length > shown.length) body.lastChild.remove();
    const left = all.length - shown.length;
    show(more, left > 0);
    say(more, `Show ${Math.min(MORE, left)} more of ${counted(left, "slot")}`);
    show(none, !all.length);
    show(whole.parentElement, all.length > 0);
  }

  update();
  return { box, update };
}
