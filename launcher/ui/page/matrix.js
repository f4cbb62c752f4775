// Who reaches whom: a cell for each pair of nodes, up to 1,024 x 1,024.

import { colour, picks, sized } from "./canvas.js";
import { badge, clip, eachPhase, el, fill, loaded, say, scrolls, section, swatch } from "./dom.js";
import { counted, grouped, milliseconds } from "./words.js";

const MOST_PAIRS = 50;
const GOOD = 1; // the number of the outcome that every pair is to have; 0 is: not probed
const SLOW_MS = 1; // below this, no difference matters
const FAILED = [[196, 30, 42], [232, 112, 18], [124, 58, 190], [190, 30, 120], [110, 60, 30], [0, 110, 150], [90, 90, 0]];

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

function rtt(byte) {
  return byte ? 0.001 * 2 ** (byte / 10) : 0;
}

/** The colour of a cell: good ones from green to yellow by their time, failed ones by outcome. */
function shade(outcome, byte) {
  if (!outcome) return [128, 136, 146];
  if (outcome !== GOOD) return FAILED[(outcome - 2) % FAILED.length];
  const slow = byte ? Math.min(1, Math.max(0, Math.log2(rtt(byte) / SLOW_MS) / 6)) : 0;
  return [46 + slow * 190, 157 + slow * 20, 79 - slow * 40];
}

class Cells {
  constructor(found) {
    this.names = found.names;
    this.side = found.names.length;
    this.outcomes = found.outcomes;
    this.cells = bytes(found.cells);
    this.rtts = bytes(found.rtts);
    this.counts = found.outcomes.map(() => 0);
    this.failed = [];
    this.failures = 0;
    this.cells.forEach((outcome, at) => {
      this.counts[outcome] += 1;
      if (outcome > GOOD && ++this.failures <= MOST_PAIRS) this.failed.push(at);
    });
    this.counts[0] -= Math.min(this.counts[0], this.side); // a node does not probe itself
  }

  words(at) {
    const [row, column] = [Math.floor(at / this.side), at % this.side];
    if (row === column) return `${clip(this.names[row], 80)}: the node itself`;
    const time = this.rtts[at] ? `, ${milliseconds(rtt(this.rtts[at]))}` : "";
    const found = this.outcomes[this.cells[at]] ?? "not known";
    return `${clip(this.names[row], 80)} to ${clip(this.names[column], 80)}: ${clip(found, 80)}${time}`;
  }

  picture() {
    const image = new ImageData(Math.max(1, this.side), Math.max(1, this.side));
    const pixels = new Uint32Array(image.data.buffer);
    const known = new Uint32Array(256 * 256); // a million cells have few colours
    const one = new Uint8ClampedArray(4);
    this.cells.forEach((outcome, at) => {
      const key = outcome * 256 + this.rtts[at];
      if (!known[key]) {
        one.set([...shade(outcome, this.rtts[at]), 255]);
        [known[key]] = new Uint32Array(one.buffer);
      }
      pixels[at] = known[key];
    });
    for (let at = 0; at < pixels.length; at += this.side + 1) image.data[at * 4 + 3] = 60;
    const canvas = el("canvas");
    canvas.width = canvas.height = image.width;
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }
}

function legend(cells) {
  return el("ul", { class: "legend" }, cells.outcomes.map((words, outcome) => {
    const count = grouped(cells.counts[outcome]);
    const text = outcome === GOOD ? `${count} pair${count === "1" ? "" : "s"} ok. Yellow: slower than the others.`
      : `${clip(words, 80)}: ${count}`;
    return cells.counts[outcome] || outcome === GOOD ? el("li", {}, swatch(`rgb(${shade(outcome, 0)})`), text) : null;
  }));
}

function drawn(found, shape) {
  const cells = new Cells(found);
  const canvas = el("canvas", { tabindex: "0", role: "img",
    "aria-label": `${grouped(cells.side)} by ${grouped(cells.side)} nodes, ${counted(cells.failures, "failed pair")}` });
  const words = el("p", { class: "picked", "aria-live": "polite" }, "Rows probe, columns are probed. Point at a cell, or press the arrow keys, to read it.");
  const picture = cells.picture();
  const whole = el("div", { class: "matrix" }, canvas);
  let size = 1;
  shape.draw = () => {
    const room = Math.min(whole.clientWidth, 768);
    if (!room || !cells.side) return;
    const most = Math.min(64, Math.max(24, Math.floor(256 / cells.side)));
    size = Math.min(most, cells.side > room ? room / cells.side : Math.floor(room / cells.side));
    const brush = sized(canvas, size * cells.side, size * cells.side);
    brush.imageSmoothingEnabled = false;
    brush.drawImage(picture, 0, 0, size * cells.side, size * cells.side);
    [brush.fillStyle, brush.textAlign, brush.font] = [colour("text"), "center", "14px sans-serif"];
    if (size > 20) cells.names.forEach((name, at) => brush.fillText(/\d+|$/.exec(name), size * (at + 0.5), size * (at + 0.5) + 5, size));
  };
  picks(canvas, () => [cells.side, cells.side], (x, y) => [Math.floor(x / size), Math.floor(y / size)], (column, row) =>
    say(words, cells.words(row * cells.side + column)));
  const left = cells.failures - cells.failed.length;
  const pairs = cells.failures ? el("ul", { class: "pairs" }, cells.failed.map((at) => el("li", {}, cells.words(at))),
    left ? el("li", {}, `and ${grouped(left)} more`) : null) : null;
  requestAnimationFrame(shape.draw);
  return [
    el("ul", { class: "networks" }, found.networks.map((one, number) => el("li", {},
      number === found.shown ? badge("shown", "off") : null, ` ${clip(one.network)}: ${clip(one.verdict)}`))),
    pairs ? section("Failed pairs", scrolls("Failed pairs", pairs)) : el("p", {}, "No pair has failed."),
    el("p", {}, clip(found.rtt_words)), words, whole, legend(cells),
  ];
}

/** See `VIEWS` in run.js. */
export function matrixView(place, ctx) {
  const shape = { draw: () => {} };
  const box = el("div");
  fill(place, box);
  const again = loaded(box, "the matrix", () => ctx.get("matrix"),
    (found) => found.shown === null ? "No network was probed yet; with one node, none is." : "",
    (found) => drawn(found, shape));
  again();
  return { resized: () => shape.draw(), update: eachPhase(ctx, again) };
}
