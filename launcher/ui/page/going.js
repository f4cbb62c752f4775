// How it is going: what features say of the program and of the machines.

import { colour, sized } from "./canvas.js";
import { clip, el, fill, say, section, show } from "./dom.js";
import { each } from "./features.js";

const [WIDE, HIGH] = [120, 26];

/** `43 %`, or of several that differ `40 to 97 %`; empty: not known. */
export function span(values) {
  const known = values.filter((one) => one != null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  if (!known.length) return "";
  return low === high ? `${low} %` : `${low} to ${high} %`;
}

/** The line of these values, from 0 to 100 per cent. */
function spark(canvas, values) {
  const brush = sized(canvas, WIDE, HIGH);
  const at = (number) => values.length < 2 ? WIDE : (number / (values.length - 1)) * WIDE;
  brush.strokeStyle = colour("line");
  brush.strokeRect(0.5, 0.5, WIDE - 1, HIGH - 1);
  [brush.strokeStyle, brush.fillStyle, brush.lineWidth] = [colour("link"), colour("link"), 1.5];
  brush.beginPath();
  values.forEach((one, number) => {
    if (one === null) return;
    const y = 2 + (HIGH - 4) * (1 - Math.min(100, one) / 100);
    if (values[number - 1] === null || !number) brush.moveTo(at(number), y);
    else brush.lineTo(at(number), y);
    if (number === values.length - 1) brush.fillRect(WIDE - 3, y - 1.5, 3, 3);
  });
  brush.stroke();
}

/** The panel; `update()` shows what is new, `draw()` draws the lines again, in another theme. */
export function going(ctx) {
  const list = el("dl", { class: "tiles" });
  const nothing = el("p", { class: "dim" });
  const hour = el("p", { class: "dim" }, "The lines show the last hour.");
  const box = section("", nothing, list, hour);
  box.className = "goes";
  let tiles = [];
  let lines = [];
  let shape = "";
  let drawn = null; // the values of the lines

  function draw() {
    drawn = lines.map(([, at]) => tiles[at][3]);
    show(hour, drawn.some((values) => values.length > 1));
    lines.forEach(([canvas, at], number) => {
      const values = drawn[number];
      show(canvas, values.length > 1);
      spark(canvas, values);
      canvas.setAttribute("aria-label", `${tiles[at][0]} in the last hour: ${span(values)}`);
    });
  }

  function update() {
    tiles = each((one) => one.tiles?.(ctx));
    const now = tiles.map(([name]) => name).join();
    if (now !== shape) {
      lines = [];
      fill(list, tiles.map(([name, , , values], at) => {
        const line = values && el("canvas", { role: "img" });
        if (line) lines.push([line, at]);
        return el("div", { class: line && lines.length === 1 && "next-row" }, el("dt", {}, name), el("dd", {}, el("b"), el("span", { class: "dim" }), line));
      }));
      shape = now;
      drawn = null;
    }
    tiles.forEach(([, words, more], at) => {
      const cell = list.children[at].lastChild;
      say(cell.children[0], clip(words, 40));
      say(cell.children[1], more);
    });
    say(box.firstChild, ctx.store.head.over ? "How far it came" : "How it is going");
    const words = each((one) => one.note?.(ctx)).join(" ");
    show(nothing, words !== "");
    say(nothing, words);
    show(box, words !== "" || tiles.length > 0);
    if (!drawn || lines.some(([, at], number) => tiles[at][3] !== drawn[number])) requestAnimationFrame(() => setTimeout(draw)); // words are read first
  }
  update();
  return { box, update, draw };
}
