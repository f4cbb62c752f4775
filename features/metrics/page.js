// Metrics: step, loss and speed beside how it goes; and the view of values over their steps, a diagram for each name.

import { colour } from "../../launcher/ui/page/canvas.js";
import { clip, el, fill, loaded, note, say, section, swatch } from "../../launcher/ui/page/dom.js";
import { FEATURES } from "../../launcher/ui/page/features.js";
import { counting, duration, grouped, value } from "../../launcher/ui/page/words.js";

const AGAIN_MS = 2000;
const HIGH = 220;
const MOST_DIAGRAMS = 40; // a page with hundreds of them is slow, and read by no one
const MOST_RANKS = 64; // are looked at for the names of their values, each second
const STANDS_SECONDS = 30;
const SPEED = /throughput|(^|[_/.])tps$|_per_s(ec(ond)?)?$|\/s(ec(ond)?)?$/i;
const ENDS = ["total_steps", "max_steps"];

/** The newest row of each rank. */
const rowsOf = ({ parts }) => [...parts.metrics?.values() ?? []];

function median(values) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : null;
}

/** `0.53`, `18,250`. */
function shown(number) {
  if (typeof number !== "number") return value(number);
  return Math.abs(number) >= 1000 && Math.abs(number) < 1e9 ? grouped(Math.round(number)) : value(Number(number.toPrecision(4)));
}

/** What the processes have reported last, each as a name, the value, and what stands beside it. */
function tiles(ctx) {
  const { head } = ctx.store;
  const rows = rowsOf(ctx.store);
  if (!rows.length) return [];
  const by = (name) => rows.map((row) => row[name]);
  const [least, most, last] = [Math.min(...by("step")), Math.max(...by("step")), Math.max(...by("at"))];
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.values)))];
  const of = (name) => rows.map((row) => row.values[name]).filter((one) => one !== undefined);
  const middle = (name) => shown(of(name).find((one) => typeof one !== "number") ?? median(of(name)));
  const many = (count) => count > 1 ? `median of ${grouped(count)} ranks` : "";
  const newest = median(by("pace"));
  const late = rows.some((row) => row.step + (last - row.at + 2) * newest < most); // in lock-step they report apart
  const age = head.over ? 0 : ctx.elapsed() - last;
  const old = age > Math.max(STANDS_SECONDS, 5 / (newest || 1)); // it has the speed no more that it had
  const pace = old ? null : newest;
  const end = ENDS.map((name) => median(of(name))).find((one) => one !== null) ?? null;
  const loss = names.find((name) => /^loss$/i.test(name)) ?? names.find((name) => /loss$/i.test(name));
  const speed = names.find((name) => SPEED.test(name));
  const left = end !== null && pace && !head.over ? (end - least) / pace : null;
  return [
    ["Step", grouped(most), old ? `${duration(age)} ago` : late ? `the last rank at ${grouped(least)}` : end === null ? "" : `of ${grouped(end)}`],
    loss && ["Loss", middle(loss), loss === "loss" ? many(of(loss).length) : clip(loss, 40)],
    speed && !old && ["Throughput", middle(speed), clip(speed, 40)],
    pace !== null && ["Speed", pace < 1 ? `${shown(1 / pace)} s` : `${shown(pace)}/s`, pace < 1 ? "each step" : "steps"],
    left !== null && left >= 0 && ["Time left", counting(left), "at this speed"],
  ].filter(Boolean);
}

/** What to do where no process has reported. */
function advice({ store: { head, parts } }) {
  if (parts.metrics) return "";
  return head.over || head.state === "running" ? "The program reports no step or loss. Try in it: rdzv.metrics.send(step, loss=...)"
    : "The programs do not run yet.";
}

/** How many names values have; null: none. */
function counted(store) {
  const names = new Set(rowsOf(store).slice(0, MOST_RANKS).flatMap(({ values }) => Object.keys(values)));
  return names.size ? grouped(names.size) : null;
}

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
function curvesView(place, ctx) {
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
      if (!touched.parts.has("metrics")) return;
      due ??= setTimeout(() => {
        due = null;
        again();
      }, AGAIN_MS);
    },
  };
}

FEATURES.push({
  name: "metrics",
  merge: (known = new Map(), rows) => rows.reduce((all, row) => all.set(row.rank, row), known),
  tab: { name: "curves", before: ["hang", "checks"], entry: ["Curves", curvesView, counted] },
  tiles,
  note: advice,
});
