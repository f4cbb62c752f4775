// Hang: what was found while nothing moved, and a look at the ranks on request.

import { button, clip, el, failed, fill, note, say, section, show } from "../../launcher/ui/page/dom.js";
import { FEATURES } from "../../launcher/ui/page/features.js";

const MOST_PLACES = 100;

function lookOf(look) {
  return [
    el("p", { class: "sentence" }, clip(look.sentence, 1000)),
    look.next_step ? el("p", { class: "next" }, `Try: ${clip(look.next_step, 1000)}`) : null,
    look.places.length ? null : note("No rank could be seen.", "nothing"),
    look.places.slice(0, MOST_PLACES).map((one, number) => el("details", { open: number < 2 },
      el("summary", {}, `${clip(one.head, 200)} `, el("span", { class: "dim" }, `ranks ${clip(one.ranks, 80)}`)),
      el("pre", { tabindex: "0" }, one.frames.map((frame) => `${clip(frame)}\n`)))),
    look.places.length > MOST_PLACES ? el("p", {}, `and ${look.places.length - MOST_PLACES} more places`) : null,
    look.notes.length ? section("Not seen", el("ul", {}, look.notes.map((note) => el("li", {}, clip(note))))) : null,
  ];
}

/** What no finding means: a run that was not judged is not known to be well. */
function unfound(head) {
  if (head.over) return "No stall was reported. Short runs, and those with --stall off, are not judged.";
  if (head.state !== "running") return "Not judged: the programs do not run.";
  return "No stall was reported so far, and none is with --stall off: a look shows where each rank is now.";
}

/** See `VIEWS` in run.js. */
function hangView(place, ctx) {
  const stall = el("p", { class: "current" });
  const found = el("div", { "aria-live": "polite" });
  const look = async () => {
    again.disabled = true;
    fill(found, note("Looking at all ranks; this takes up to 7 s …", "loading"));
    try {
      fill(found, lookOf(await ctx.source.act(ctx.run, { act: "look" })));
    } catch (error) {
      fill(found, failed("what the ranks do", error, look));
    }
    again.disabled = false;
    say(again, "Look again");
  };
  const again = button("Look at all ranks", look);
  const may = note(["A look shows where every rank is now and stops nothing: run ",
    el("code", {}, `rdzv look ${clip(ctx.run, 80)}`), ", or start this page with ", el("code", {}, "rdzv ui --ui-actions"), "."]);
  fill(place, stall, el("p", {}, again), may, found);
  const head = () => {
    const now = ctx.store.head;
    const next = now.finding && now.next_step && !now.over ? `. Try: ${clip(now.next_step, 1000)}` : "";
    say(stall, now.finding ? clip(now.finding, 1000) + next : clip(now.silence, 1000) || unfound(now));
    show(again, ctx.actions && !now.over);
    show(may, !ctx.actions && !now.over);
  };
  head();
  return { update: (touched) => touched.head && head() };
}

FEATURES.push({
  name: "hang",
  tab: { name: "hang", before: ["checks"], entry: ["Hang", hangView,
    ({ head }) => head.finding || head.silence || head.result?.code === "stalled" ? "1" : null, "wrong"] },
});
