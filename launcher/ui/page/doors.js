// What is there before a run is shown: the list of runs, and the form for a key.

import { openSession } from "./api.js";
import { badge, clip, el, failed, field, fill, loaded, note, row, scrolls, table, toned } from "./dom.js";
import { date, duration } from "./words.js";

const AGAIN_MS = 5000;
const MOST_RUNS = 200;

/** The list of runs; returns what ends it. */
export function runList(place, source, address, closed) {
  const box = el("div");
  fill(place, el("h1", { tabindex: "-1" }, "Runs"), box);
  const again = loaded(box, "the runs", async () => {
    try {
      return await source.runs();
    } catch (error) {
      if (error.status === 401) closed();
      throw error;
    }
  }, (runs) => runs.length ? "" : "No run was launched on this machine: rdzv launch starts one.", (runs) => {
    const { whole, body } = table("Runs, the newest first", ["Run", "State", "Nodes", "Started", "Took", "Command", "Why"]);
    body.append(...runs.slice(0, MOST_RUNS).map((run) => row([
      el("a", { href: address({ run: run.run, view: "now" }) }, clip(run.run, 80)),
      badge(run.exit_code ? `${run.state} (${run.exit_code})` : run.state, run.tone), clip(run.nodes, 20),
      date(run.started_at), run.took_seconds === null ? "" : duration(run.took_seconds),
      clip(run.command, 120), clip(run.reason, 200)], { class: `is-${toned(run.tone)}` })));
    const left = runs.length - MOST_RUNS;
    return [scrolls("Runs", whole), left > 0 ? note(`and ${left} more: rdzv status --all`) : null];
  });
  again();
  const timer = setInterval(() => document.hidden || box.contains(document.activeElement) || again(), AGAIN_MS);
  return () => clearInterval(timer);
}

/** The form for a key; `opened` is called with the new session. */
export function keyForm(place, why, opened) {
  const key = el("input", { type: "password", name: "key", required: true, autocomplete: "current-password", maxlength: "500" });
  const wrong = el("div");
  const open = async () => {
    try {
      opened(await openSession({ key: key.value }));
    } catch (error) {
      fill(wrong, failed("a session", error, open));
    }
  };
  const form = el("form", { class: "key", on: { submit: (event) => {
    event.preventDefault();
    open();
  } } }, el("h1", { tabindex: "-1" }, "Open this page"), why ? note(clip(why), "", { role: "status" }) : null,
  field("Key", key), el("button", { type: "submit" }, "Open"), wrong,
  el("p", {}, "A link opens this page once. ", el("code", {}, "rdzv ui RUN"), " prints a new one, on the machine that launched the run."),
  el("p", {}, "Where you cannot run that, the key is in the file that ", el("code", {}, "RDZV_UI_KEY_FILE"), " names."));
  fill(place, form);
  key.focus();
}
