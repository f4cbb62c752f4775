// How it is going: what the program has told of itself, and how busy the machines are.

import { colour, sized } from "./canvas.js";
import { clip, el, fill, say, section, show } from "./dom.js";
import { counting, duration, grouped, value } from "./words.js";

const [WIDE, HIGH] = [120, 26];
const MACHINES = ["CPU load", "Memory", "GPU", "GPU memory"];
const STANDS_SECONDS = 30;
const SPEED = /throughput|(^|[_/.])tps$|_per_s(ec(ond)?)?$|\/s(ec(ond)?)?$/i;
const ENDS = ["total_steps", "max_steps"];

function median(values) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : null;
}

/** `0.53`, `18,250`. */
function shown(number) {
  if (typeof number !== "number") return value(number);
  return Math.abs(number) >= 1000 && Math.abs(number) < 1e9 ? grouped(Math.round(number)) : value(Number(number.toPrecision(4)));
}

/** `43 %`, or of machines that differ `40 to 97 %`; empty: not told. */
function span(values) {
  const known = values.filter((one) => one !== null && one !== undefined);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  if (!known.length) return "";
  return low === high ? `${low} %` : `${low} to ${high} %`;
}

/** `CPU load 43 %, Memory 61 %` of one machine. */
export function busyWords(busy) {
  return (busy ?? []).map((one, kind) => one === null ? "" : `${MACHINES[kind]} ${one} %`)
    .filter(Boolean).join(", ");
}

/** What the processes have told last, each as a name, the value, and what stands beside it. */
function reported({ ranks, head }, elapsed) {
  const rows = [...ranks.values()];
  if (!rows.length) return [];
  const steps = rows.map((row) => row.step);
  const [least, most] = [Math.min(...steps), Math.max(...steps)];
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.values)))];
  const of = (name) => rows.map((row) => row.values[name]).filter((one) => one !== undefined);
  const middle = (name) => shown(of(name).find((one) => typeof one !== "number") ?? median(of(name)));
  const many = (count) => count > 1 ? `median of ${grouped(count)} ranks` : "";
  const newest = median(rows.map((row) => row.pace ?? NaN));
  const age = head.over ? 0 : elapsed - Math.max(...rows.map((row) => row.at));
  const old = age > Math.max(STANDS_SECONDS, 5 / (newest || 1)); // it has the speed no more that it had
  const pace = old ? null : newest;
  const end = ENDS.map((name) => median(of(name))).find((one) => one !== null) ?? null;
  const loss = names.find((name) => /^loss$/i.test(name)) ?? names.find((name) => /loss$/i.test(name));
  const speed = names.find((name) => SPEED.test(name));
  const left = end !== null && pace && !head.over ? (end - least) / pace : null;
  return [
    ["Step", grouped(most), old ? `${duration(age)} ago` : least < most ? `the last rank at ${grouped(least)}` : end === null ? "" : `of ${grouped(end)}`],
    loss && ["Loss", middle(loss), loss === "loss" ? many(of(loss).length) : clip(loss, 40)],
    speed && !old && ["Throughput", middle(speed), clip(speed, 40)],
    pace !== null && ["Speed", pace < 1 ? `${shown(1 / pace)} s` : `${shown(pace)}/s`, pace < 1 ? "each step" : "steps"],
    left !== null && left >= 0 && ["Time left", counting(left), "at this speed"],
  ].filter(Boolean);
}

/** The line of one kind of use over the points, from 0 to 100 per cent. */
function spark(canvas, points, kind) {
  const brush = sized(canvas, WIDE, HIGH);
  const known = points.map((point) => point[kind + 1]);
  const at = (number) => known.length < 2 ? WIDE : (number / (known.length - 1)) * WIDE;
  brush.strokeStyle = colour("line");
  brush.strokeRect(0.5, 0.5, WIDE - 1, HIGH - 1);
  [brush.strokeStyle, brush.fillStyle, brush.lineWidth] = [colour("link"), colour("link"), 1.5];
  brush.beginPath();
  known.forEach((one, number) => {
    if (one === null) return;
    const y = 2 + (HIGH - 4) * (1 - Math.min(100, one) / 100);
    if (known[number - 1] === null || !number) brush.moveTo(at(number), y);
    else brush.lineTo(at(number), y);
    if (number === known.length - 1) brush.fillRect(WIDE - 3, y - 1.5, 3, 3);
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
  let lines = [];
  let shape = "";
  let drawn = null; // of which usage the lines are

  function tiles() {
    const { usage, head } = ctx.store;
    const last = usage.points.at(-1) ?? [];
    const busy = MACHINES.map((name, kind) => {
      const now = Object.values(usage.slots).map((one) => one[kind]);
      const more = span(now).includes("to") ? `${span(now)} by node` : "";
      return [name, last[kind + 1] ?? null, more, kind];
    }).filter(([, mean]) => mean !== null).map(([name, mean, more, kind]) => [name, `${mean} %`, more, kind]);
    return [...reported(ctx.store, ctx.elapsed()), ...(head.over ? [] : busy)];
  }

  function draw() {
    drawn = ctx.store.usage;
    const { points } = drawn;
    show(hour, lines.length > 0 && points.length > 1);
    lines.forEach(([canvas, kind]) => {
      show(canvas, points.length > 1);
      spark(canvas, points, kind);
      const known = points.map((point) => point[kind + 1]);
      canvas.setAttribute("aria-label", `${MACHINES[kind]} in the last hour: ${span(known)}`);
    });
  }

  function update() {
    const found = tiles();
    const now = found.map(([name]) => name).join();
    if (now !== shape) {
      lines = [];
      fill(list, found.map(([name, , , kind]) => {
        const line = kind === undefined ? null : el("canvas", { role: "img" });
        if (line) lines.push([line, kind]);
        return el("div", { class: line && lines.length === 1 && "next-row" }, el("dt", {}, name), el("dd", {}, el("b"), el("span", { class: "dim" }), line));
      }));
      shape = now;
      drawn = null;
    }
    found.forEach(([, words, more], at) => {
      const cell = list.children[at].lastChild;
      say(cell.children[0], clip(words, 40));
      say(cell.children[1], more);
    });
    const { head, ranks } = ctx.store;
    say(box.firstChild, head.over ? "How far it came" : "How it is going");
    show(nothing, !ranks.size);
    say(nothing, head.over || head.state === "running" ? "The program reports no step or loss. Try in it: rdzv.metrics.send(step, loss=...)"
      : "The programs do not run yet.");
    if (drawn !== ctx.store.usage) requestAnimationFrame(() => setTimeout(draw)); // words are read first
  }
  update();
  return { box, update, draw };
}
