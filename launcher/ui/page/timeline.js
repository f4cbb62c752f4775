// When each node was in which phase: a bar a node, and above 64 nodes a thin line, the worst first.

import { colour, picks, sized } from "./canvas.js";
import { el, say, show, swatch } from "./dom.js";
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
  ["failed", "has failed"],
  ["awaited", "silent, or waited for"],
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

/** What a phase of a slot counts as: how it failed, or makes others wait, has a colour of its own. */
function kindOf(slot, span) {
  if (span !== slot.spans.at(-1)) return span.phase;
  if (slot.tone === "bad") return "failed";
  return span.phase === "running" && slot.tone === "wait" ? "awaited" : span.phase;
}

/** A slot's phases in words. */
function course(slot, elapsed, name) {
  const parts = slot.spans.map((span) => `${span.phase} ${duration((span.end ?? elapsed) - span.start)}`);
  const mark = slot.mark ? `, ${slot.mark}` : "";
  return `${name}${mark}${slot.host ? ` (${slot.host})` : ""}: ${parts.join(", ") || "nothing yet"}`;
}

/** The timeline; `redraw()` soon draws it again. */
export function timeline(ctx) {
  const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": "Phases of all nodes over time" });
  const words = el("p", { class: "picked", "aria-live": "polite" }, "Point at a bar, or press the arrow keys, to read it.");
  const entries = PHASES.map(([name, text]) => el("li", {}, swatch(`var(--phase-${name})`), text));
  const legend = el("ul", { class: "legend" }, entries);
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
    const left = bars ? 40 : 6;
    const thick = bars ? high - Math.ceil(high / 6) : high;
    const named = Math.ceil(12 / high);
    const brush = sized(canvas, width, Math.max(14, high * slots.length) + FOOT);
    const elapsed = Math.max(1, ctx.elapsed());
    const scale = (width - left) / elapsed;
    const colours = new Map(PHASES.map(([name]) => [name, colour(`phase-${name}`)]));
    brush.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const tones = { bad: colour("bad"), wait: colour("wait") };
    const dim = colour("dim");
    const kinds = new Set();
    brush.fillStyle = dim;
    for (const at of marks(elapsed, width / 110)) {
      const x = left + at * scale;
      brush.fillRect(x, high * slots.length, 1, 4);
      if (x < width - 30) brush.fillText(at ? duration(at) : "0", x + 3, high * slots.length + 14);
    }
    const fades = ctx.store.head.over && slots.some((slot) => slot.mark); // the others are not looked for
    const marked = slots.findIndex((slot) => slot.mark); // the name of its neighbour makes room for its own
    slots.forEach((slot, row) => {
      brush.fillStyle = (slot.tone === "bad" || slot.mark ? tones[slot.tone] : null) ?? dim;
      if (bars && (slot.mark || (row % named === 0 && (marked < 0 || Math.abs(row - marked) >= named)))) {
        brush.fillText(`${slot.mark ? "▸" : ""}${slot.node ?? `s${slot.slot}`}`, slot.mark ? 0 : 8, row * high + 9);
      } else if (!bars && slot.mark) brush.fillRect(0, row * high - 1, left - 1, Math.max(3, high));
      for (const span of slot.spans) {
        const kind = kindOf(slot, span);
        kinds.add(kind);
        const most = kind === "failed" ? width - 8 : width - 1; // which came at the very end, and is seen all the same
        const x = Math.min(most, left + span.start * scale);
        brush.fillStyle = colours.get(kind) ?? colours.get("submitted");
        const wide = Math.max(kind === "failed" ? 8 : 1, ((span.end ?? elapsed) - span.start) * scale);
        brush.globalAlpha = fades && !slot.mark ? 0.5 : 1;
        brush.fillRect(x, row * high, Math.min(wide, width - x), thick);
      }
      brush.globalAlpha = 1;
      if (slot.mark && high > 3) {
        [brush.strokeStyle, brush.lineWidth] = [brush.fillStyle = tones[slot.tone] ?? dim, 2];
        brush.strokeRect(left, row * high + 1, width - left - 1, thick - 2);
      }
    });
    PHASES.forEach(([name], at) => show(entries[at], kinds.has(name)));
    canvas.setAttribute("aria-label", `Phases of ${counted(slots.length, "node")} over ${duration(elapsed)}`);
  }

  picks(canvas, () => [1, slots.length], (x, y) => [0, Math.floor(y / high)], (_, row) =>
    say(words, course(slots[row], ctx.elapsed(), slots[row].node === null ? `slot ${slots[row].slot}` : `node ${ctx.store.nameOf(slots[row])}`)));
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
