// The first screen: what is wrong, beside how it is going; then the nodes, the worst first.

import { acts } from "./acts.js";
import { clip, el, fill, note, say, section, show, toned } from "./dom.js";
import { going } from "./going.js";
import { slotTable } from "./slots.js";
import { logOf } from "./store.js";
import { timeline } from "./timeline.js";
import { counting, date, duration } from "./words.js";

const WIDE = matchMedia("(min-width: 1000px)"); // as in app.css

function facts(ctx) {
  const { head } = ctx.store;
  const restarts = head.max_restarts || head.restarts ? `${head.restarts} of ${head.max_restarts}` : "";
  const again = head.max_replacements ? `, ${head.resubmitted} of ${head.max_replacements} submitted again` : "";
  const replaced = head.max_replacements || head.replacements ? `${head.replacements}${again}` : "";
  const left = head.remaining === null || head.over ? "" : counting(head.remaining - ctx.since());
  return [
    ["Until time-out", left],
    ["Nodes", head.nodes.includes(":") ? head.nodes : ""], // else the sentence and the table say it
    ["Epoch", head.epoch > 1 ? head.epoch : ""],
    ["Restarts", restarts],
    ["Nodes replaced", replaced],
    ["Scheduler", head.scheduler],
    ["Launched on", head.host],
    ["Started", date(head.started_at)],
    ["Command", head.command],
  ].filter(([, words]) => words !== "");
}

/** What is not said by the sentence already. */
function notesOf(head) {
  const silent = head.silent_seconds === null || head.silent_seconds === undefined ? ""
    : `The registry has not answered for ${duration(head.silent_seconds)}; what is shown is older than that.`;
  return [silent, head.trouble, head.finding, head.silence].filter((words) => words && !head.sentence.includes(words));
}

/** What shows the cause, which the sentence says; of a run that is ok, nothing. */
function evidenceOf(ctx, result) {
  const list = (title, lines, tag) => lines?.length ? [el("h2", {}, title), el(tag, { tabindex: tag === "pre" && "0" },
    lines.map((line) => tag === "ul" ? el("li", {}, clip(line)) : `${clip(line, 2000)}\n`))] : [];
  // Of one cause everything is said once: what the sentence has is not shown again.
  const news = (result.evidence ?? []).filter((line) => !ctx.store.head.sentence.includes(line.replace(/^\w+ \d+ (said: )?/, "")));
  const whose = result.exit_code_of === "program" ? "the program's" : "rdzv's";
  return [
    el("p", {}, `Exit code ${result.exit_code} (${whose}).`),
    list("Where ranks were", result.finding?.stacks, "ul"),
    list("Evidence", news, "ul"),
    list("Last output", result.tail, "pre"),
    result.log ? el("p", { class: "dim" }, "Log: ", el("code", {}, clip(result.log))) : null,
  ];
}

/** See `VIEWS` in run.js. */
export function nowView(place, ctx) {
  const sentence = el("p", { class: "sentence" });
  const next = el("p", { class: "next" });
  const log = el("a", { class: "go" });
  const notes = el("div");
  const result = el("div", { class: "result" });
  const list = el("dl", { class: "facts" });
  const line = timeline(ctx);
  const slots = slotTable(ctx);
  const does = acts(ctx);
  const goes = going(ctx);
  const counts = el("p", { class: "dim tally" });
  const first = el("div", { class: "pair first" },
    el("section", { class: "lead", "aria-label": "State of the run" }, sentence, next, log, notes, result),
    goes.box);
  const about = el("div", { class: "about" }, list, does.box);
  let ended = null;
  place.append(
    first,
    el("div", { class: "pair" }, section("Nodes", counts, slots.box), section("Phases", line.box)),
  );

  /** Where there is room for one column, facts and acts are its end: for eyes, keys and readers alike. */
  function lay() {
    const home = WIDE.matches ? first : place;
    if (about.parentElement !== home) home.append(about);
  }

  function times() {
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

  /** What is found in all nodes and ranks: anew each second, however much changes. */
  function count() {
    goes.update();
    does.update();
    link();
    tally();
  }

  function link() {
    const found = logOf(ctx.store.culprit() ?? {});
    show(log, found !== null);
    if (!found) return;
    say(log, `Open the log of ${found[0]}`);
    log.href = ctx.address({ view: "logs", ...found[1] });
  }

  /** How many nodes are alike, the worst first. */
  function tally() {
    const alike = new Map();
    for (const slot of ctx.store.worstFirst()) {
      alike.set(slot.counts_as, (alike.get(slot.counts_as) ?? 0) + 1);
    }
    const parts = [...alike].map(([words, many]) => `${many} ${words}`);
    say(counts, clip(parts.join(", "), 200));
    show(counts, alike.size > 1);
  }

  function head() {
    const { head: now } = ctx.store;
    say(sentence, clip(now.sentence, 1000));
    sentence.className = `sentence is-${toned(now.tone)}`;
    show(next, Boolean(now.next_step));
    say(next, `Try: ${clip(now.next_step, 1000)}`);
    fill(notes, notesOf(now).map((words) => note(clip(words, 1000))));
    show(result, now.over && now.result !== null && now.result.status !== "ok");
    if (now.over && now.result !== ended) {
      fill(result, evidenceOf(ctx, now.result ?? {}));
      for (const output of result.querySelectorAll("pre")) output.scrollTop = output.scrollHeight; // the error is at its end
    }
    ended = now.result;
    first.classList.toggle("over", now.over);
    times();
    count();
  }

  lay();
  head();
  line.draw();
  return {
    tick() {
      times();
      count();
    },
    resized() {
      lay();
      line.draw();
      goes.draw();
    },
    close: line.close,
    update(touched) {
      if (touched.head) head();
      slots.columns(touched);
      if (touched.slots.size) {
        slots.update();
        line.redraw();
      }
    },
  };
}
