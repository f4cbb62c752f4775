// What happened, the newest first.

import { button, clip, el, failed, field, fill, note, row, say, scrolls, show, table } from "./dom.js";
import { counted, duration } from "./words.js";

const SHOWN = 500;

function nodeOf({ slot }, { store }) {
  if (slot === null) return "";
  return store.slots.has(slot) ? store.nameOf(store.slots.get(slot)) : `slot ${slot}`;
}

function rowOf(event, ctx) {
  const phase = `${clip(event.phase, 40)}${event.epoch > 1 ? `, epoch ${event.epoch}` : ""}`;
  return row([duration(event.at), clip(event.kind, 80), nodeOf(event, ctx), phase, clip(event.reason)]);
}

/** See `VIEWS` in run.js. */
export function eventsView(place, ctx) {
  let usual = false;
  let most = SHOWN;
  let rows = new Map();
  let allThere = Boolean(ctx.source.saved);
  const { whole, body } = table("Events, the newest first", ["At", "Event", "Node", "Phase", "Why"]);
  const box = el("input", { type: "checkbox", on: { change: () => {
    usual = box.checked;
    draw();
  } } });
  const none = note("", "nothing");
  const wrong = el("div");
  const older = button("Older", async () => {
    older.disabled = true;
    fill(wrong);
    try {
      const [first] = ctx.store.events;
      const found = first ? await ctx.get("events", { before: first.number }) : [];
      allThere = !found.length;
      ctx.store.prepend(found);
      most += found.length;
      draw();
    } catch (error) {
      fill(wrong, failed("older events", error, () => older.click()));
    }
    older.disabled = false;
  });
  const end = note("There are no older events.");
  place.append(el("div", { class: "controls" }, field("Show also what every node does", box)), none,
    scrolls("Events", whole), older, end, wrong);

  function draw() {
    const all = ctx.store.events.filter((event) => usual || !event.usual);
    const shown = all.slice(-most).reverse();
    // An event does not change: its row is made once, as long as it is shown.
    rows = new Map(shown.map((event) => [event.number, rows.get(event.number) ?? rowOf(event, ctx)]));
    body.replaceChildren(...rows.values());
    const hidden = ctx.store.events.length - all.length;
    say(none, hidden ? `Only usual events so far: ${counted(hidden, "event")} not shown.` : "Nothing has happened yet.");
    show(none, !shown.length);
    show(whole.parentElement, shown.length > 0);
    show(older, !allThere);
    show(end, allThere);
  }
  draw();
  return { update: (touched) => touched.events && draw() };
}
