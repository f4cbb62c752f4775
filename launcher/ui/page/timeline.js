// When each slot was in which phase: a bar a slot, and above 64 slots a thin line, the worst first.

import { picks, sized } from "./canvas.js";
import { colour, el, say } from "./dom.js";
import { counted, duration } from "./words.js";

const PHASES = [
  ["submitted", "submitted"],
  ["queued", "waits at the scheduler"],
  ["booted", "has started"],
  ["joined", "has joined"],
  ["verified", "is verified"],
  ["armed", "is ready"],
  ["running", "its program runs"],
  ["ended", "its program has ended"],
];
const MOST_BARS = 64;
const HIGH = 384; // of all slots together, where they are many
const FOOT = 18;
const REST_MS = 250;

/** The times at which the axis has a mark: about `count` of them. */
export function marks(most, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  const step = steps.find((one) => most / one <= count) ?? Math.ceil(most / count / 86400) * 86400;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, number) => number * step);
}

/** A slot's phases in words. */
function course(slot, elapsed) {
  const parts = slot.spans.map((span) => `${span.phase} ${duration((span.end ?? elapsed) - span.start)}`);
  const mark = slot.mark ? `, ${slot.mark}` : "";
  return `slot ${slot.slot}${mark}${slot.host ? ` (${slot.host})` : ""}: ${parts.join(", ") || "nothing yet"}`;
}

/** The timeline; `redraw()` soon draws it again. */
export function timeline(ctx) {
  const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": "Phases of all slots over time" });
  const words = el("p", { class: "picked", "aria-live": "polite" }, "Point at a bar, or press the arrow keys, to read it.");
  const legend = el("ul", { class: "legend" }, PHASES.map(([name, text]) =>
    el("li", {}, el("span", { class: `swatch phase-${name}` }), text)));
  const box = el("div", { class: "timeline" }, canvas, words, legend);
  let slots = [];
  let due = null;
  let high = 1;

  function draw() {
    due = null;
    const width = box.clientWidth;
    if (!width) return;
    slots = ctx.store.worstFirst();
    if (slots.length <= MOST_BARS) slots.sort((a, b) => a.slot - b.slot);
    const bars = slots.length <= MOST_BARS;
    high = Math.min(14, HIGH / slots.length);
    const left = bars ? 34 : 0;
    const named = Math.ceil(12 / high);
    const brush = sized(canvas, width, Math.max(14, high * slots.length) + FOOT);
    const elapsed = Math.max(1, ctx.elapsed());
    const scale = (width - left) / elapsed;
    const colours = new Map(PHASES.map(([name]) => [name, colour(`phase-${name}`)]));
    brush.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const [dim, bad] = [colour("dim"), colour("bad")];
    brush.fillStyle = dim;
    for (const at of marks(elapsed, width / 110)) {
      const x = left + at * scale;
      brush.fillRect(x, 0, 1, high * slots.length + 4);
      if (x < width - 30) brush.fillText(at ? duration(at) : "0", x + 3, high * slots.length + 14);
    }
    slots.forEach((slot, row) => {
      if (bars && row % named === 0) {
        brush.fillStyle = slot.tone === "bad" ? bad : dim;
        brush.fillText(slot.slot, 2, row * high + 10);
      }
      for (const span of slot.spans) {
        const x = left + span.start * scale;
        brush.fillStyle = colours.get(span.phase) ?? colours.get("submitted");
        const wide = Math.max(1, ((span.end ?? elapsed) - span.start) * scale);
        brush.fillRect(x, row * high, Math.min(wide, width - x), bars ? high - Math.ceil(high / 6) : high);
      }
    });
    canvas.setAttribute("aria-label", `Phases of ${counted(slots.length, "slot")} over ${duration(elapsed)}`);
  }

  picks(canvas, () => [1, slots.length], (x, y) => [0, Math.floor(y / high)], (_, row) =>
    say(words, course(slots[row], ctx.elapsed())));
  return {
    box,
    draw,
    redraw() {
      if (!slots.length && due === null) draw(); // what comes first is shown at once
      else due ??= setTimeout(draw, REST_MS);
    },
    close() {
      clearTimeout(due);
    },
  };
}
