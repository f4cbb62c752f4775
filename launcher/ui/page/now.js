// The first screen: one sentence, what follows from it, and where each slot is.

import { acts } from "./acts.js";
import { badge, clip, el, fill, note, say, section, show, toned } from "./dom.js";
import { slotTable } from "./slots.js";
import { timeline } from "./timeline.js";
import { counting, date, duration } from "./words.js";

function facts(ctx) {
  const { head } = ctx.store;
  const restarts = head.max_restarts || head.restarts ? `${head.restarts} of ${head.max_restarts}` : "";
  const again = head.max_replacements ? `, ${head.resubmitted} of ${head.max_replacements} submitted again` : "";
  const replaced = head.max_replacements || head.replacements ? `${head.replacements}${again}` : "";
  const left = head.remaining === null || head.over ? "" : counting(head.remaining - ctx.since());
  return [
    [head.over ? "Took" : "Elapsed", counting(ctx.elapsed())],
    ["Time left", left],
    ["Nodes", head.nodes],
    ["Epoch", head.epoch > 1 ? head.epoch : ""],
    ["Restarts", restarts],
    ["Nodes replaced", replaced],
    ["Scheduler", head.scheduler],
    ["Launched on", head.host],
    ["Started", date(head.started_at)],
    ["Command", head.command],
  ].filter(([, words]) => words !== "");
}

function notesOf(head) {
  const silent = head.silent_seconds === null || head.silent_seconds === undefined ? ""
    : `The registry has not answered for ${duration(head.silent_seconds)}; what is shown is older than that.`;
  return [silent, head.trouble, head.stall, head.silence].filter(Boolean);
}

/** How the run ended, with what shows it. */
function resultPanel(result) {
  const list = (title, lines, tag) => lines?.length ? [el("h3", {}, title), el(tag, {}, lines.map((line) =>
    tag === "ul" ? el("li", {}, clip(line)) : `${clip(line, 2000)}\n`))] : [];
  const whose = result.exit_code_of === "program" ? "the program's" : "rdzv's";
  return [
    el("p", {}, badge(result.status ?? "", result.status === "ok" ? "good" : "bad"), " ", clip(result.message, 2000)),
    result.hint ? el("p", {}, `try: ${clip(result.hint, 2000)}`) : null,
    result.status === "ok" ? null : el("p", {}, `Exit code ${result.exit_code} (${whose})`
      + `${result.certain === false ? "; it was seen here first, its cause is not certain" : ""}`),
    list("What shows it", result.evidence, "ul"),
    list("Last output", result.tail, "pre"),
    result.log ? el("p", {}, "Log: ", el("code", {}, clip(result.log))) : null,
  ];
}

/** See `VIEWS` in run.js. */
export function nowView(place, ctx) {
  const sentence = el("p", { class: "sentence" });
  const next = el("p", { class: "next" });
  const list = el("dl", { class: "facts" });
  const notes = el("div");
  const over = section("Result");
  const result = el("div", { class: "result" });
  over.append(result);
  const line = timeline(ctx);
  const slots = slotTable(ctx);
  const does = acts(ctx);
  let ended = null;
  place.append(sentence, next, notes, list, over, does.box, section("Phases", line.box), section("Slots", slots.box));

  function tick() {
    const found = facts(ctx);
    if (list.children.length !== found.length) {
      fill(list, found.map(([name]) => el("div", {}, el("dt", {}, name), el("dd"))));
    }
    found.forEach(([name, words], at) => {
      say(list.children[at].firstChild, name);
      say(list.children[at].lastChild, clip(words, 300));
    });
    if (!ctx.store.head.over) line.redraw();
  }

  function head() {
    const { head: now } = ctx.store;
    say(sentence, clip(now.sentence, 1000));
    sentence.className = `sentence is-${toned(now.tone)}`;
    show(next, Boolean(now.next_step));
    say(next, `try: ${clip(now.next_step, 1000)}`);
    fill(notes, notesOf(now).map((words) => note(clip(words, 1000))));
    show(over, now.over && now.result !== null);
    if (now.over && now.result !== ended) fill(result, resultPanel(now.result ?? {}));
    ended = now.result;
    does.update();
    tick();
  }

  head();
  line.draw();
  return {
    tick,
    resized: line.draw,
    close: line.close,
    update(touched) {
      if (touched.head) head();
      if (touched.slots.size) {
        slots.update();
        line.redraw();
      }
    },
  };
}
