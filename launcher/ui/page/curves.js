// The values that the ranks have reported, over their steps: a diagram for each name.

import { colour } from "./canvas.js";
import { clip, el, fill, loaded, note, say, section, swatch } from "./dom.js";
import { grouped, value } from "./words.js";

const AGAIN_MS = 2000;
const HIGH = 220;
const MOST_DIAGRAMS = 40; // a page with hundreds of them is slow, and read by no one

/** uPlot's data and series of one name's curves; of a range, its two edges and the band between. */
function columnsOf(curves) {
  const tables = [];
  const series = [{}];
  const bands = [];
  curves.forEach((curve, number) => {
    const stroke = colour(`curve-${number % 8}`);
    const line = { label: curve.label, stroke, width: 1.5, points: { show: curve.steps.length < 3 } };
    if (curve.low && curve.high) {
      const edge = { ...line, width: 0.5, points: { show: false } };
      series.push({ ...edge, label: "highest" }, { ...edge, label: "lowest" });
      bands.push({ series: [series.length - 2, series.length - 1], fill: colour("band") });
      tables.push([curve.steps, curve.high, curve.low, curve.values]);
    } else {
      tables.push([curve.steps, curve.values]);
    }
    series.push(line);
  });
  return { data: uPlot.join(tables), series, bands };
}

class Diagram {
  #shape = "";

  constructor(name) {
    this.words = el("p", { class: "picked" });
    this.legend = el("ul", { class: "legend" });
    this.room = el("div", { class: "curve", role: "img", "aria-label": `Curve of ${clip(name, 80)}` });
    this.box = section(clip(name, 80), this.legend, this.room, this.words);
  }

  draw(curves) {
    this.curves = curves;
    const { data, series, bands } = columnsOf(curves);
    // The same curves with more steps are the same diagram.
    const shape = JSON.stringify([series.map((one) => one.label), colour("text")]);
    if (this.plot && shape === this.#shape) {
      this.plot.setData(data);
    } else {
      this.#shape = shape;
      this.plot?.destroy();
      const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
      this.plot = new uPlot({
        width: Math.max(200, this.room.clientWidth), height: HIGH, series, bands, legend: { show: false },
        scales: { x: { time: false } }, cursor: { y: false, drag: { x: false, y: false } },
        axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(value) }],
        hooks: { setCursor: [(plot) => this.#read(plot.cursor.idx)] },
      }, data, this.room);
      fill(this.legend, curves.map((curve, number) => el("li", {}, swatch(`var(--curve-${number % 8})`),
        clip(`${curve.label}${curve.low ? ", and the range of all" : ""}`, 80))));
    }
    this.#read(this.plot.cursor.idx);
  }

  #read(at) {
    const { data, series } = this.plot;
    const place = at ?? data[0].length - 1;
    if (place < 0) return say(this.words, "No step yet.");
    const parts = series.slice(1).map((one, number) => [one.label, data[number + 1][place]]);
    const known = parts.filter(([, found]) => found != null).map(([label, found]) => `${clip(label, 40)} ${value(found)}`);
    say(this.words, `Step ${grouped(data[0][place])}: ${known.join(", ") || "not a finite number"}`);
  }

  resized() {
    if (!this.plot) return;
    this.plot.setSize({ width: Math.max(200, this.room.clientWidth), height: HIGH });
    this.draw(this.curves); // the theme may be another one
  }
}

/** See `VIEWS` in run.js. */
export function curvesView(place, ctx) {
  const diagrams = new Map();
  const box = el("div");
  let due = null;
  place.append(box);
  const draw = ({ curves }) => {
    const names = Object.keys(curves);
    const shown = names.slice(0, MOST_DIAGRAMS).map((name) => {
      if (!diagrams.has(name)) diagrams.set(name, new Diagram(name));
      return diagrams.get(name);
    });
    requestAnimationFrame(() => shown.forEach((diagram, number) => diagram.draw(curves[names[number]])));
    const left = names.length - shown.length;
    return [shown.map(({ box: one }) => one), left > 0 ? note(`and ${left} more values: rdzv metrics RUN --json`) : null];
  };
  const again = loaded(box, "the curves", () => ctx.get("curves"),
    ({ curves }) => Object.keys(curves).length ? ""
      : "No rank has reported a value yet. A program does it with rdzv.metrics.send(step, loss=...).", draw);
  again();
  return {
    resized: () => diagrams.forEach((diagram) => diagram.resized()),
    close: () => clearTimeout(due),
    update(touched) {
      if (!touched.ranks) return;
      due ??= setTimeout(() => {
        due = null;
        again();
      }, AGAIN_MS);
    },
  };
}
