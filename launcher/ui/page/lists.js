// The views that are a list of what one request brings: checks, epochs, environment.

import { badge, choice, clip, eachPhase, el, field, fill, loaded, note, row, say, scrolls, section, show, table } from "./dom.js";
import { counted, duration } from "./words.js";

const TONES = { fail: "bad", warn: "wait", ok: "good" };

/** See `VIEWS` in run.js. */
export function checksView(place, ctx) {
  const again = loaded(place, "the checks", () => ctx.get("checks"),
    (found) => found.findings.length ? "" : found.total || "Nothing was checked yet.",
    (found) => {
      const { whole, body } = table("What was checked before the start, the worst first", ["Result", "Check", "What was found"]);
      // A saved file has no server that would have the page.
      const named = (check) => ctx.source.saved ? clip(check, 80) : el("a", { href: `docs/checks.md#:~:text=${encodeURIComponent(check)}`,
        target: "_blank", rel: "noopener" }, clip(check, 80));
      body.append(...found.findings.map((one) => row([badge(one.level, TONES[one.level]), named(one.check),
        [clip(one.text, 1000), one.fix ? el("p", { class: "next" }, `Try: ${clip(one.fix, 1000)}`) : null]])));
      return [el("p", {}, clip(found.total)), scrolls("Checks", whole)];
    });
  again();
  return { update: eachPhase(ctx, again) };
}

/** See `VIEWS` in run.js. */
export function epochsView(place, ctx) {
  function draw() {
    const { head, epochs } = ctx.store;
    const now = head.over ? `Epoch ${head.epoch} was the last one.` : `Epoch ${head.epoch} is in progress.`;
    const used = head.max_restarts ? ` ${head.restarts} of ${counted(head.max_restarts, "restart")} used.` : "";
    const replaced = head.replacements ? ` ${counted(head.replacements, "node")} replaced.` : "";
    const ended = [...epochs].reverse().map((one) => section(`Epoch ${one.epoch}`,
      el("p", {}, clip(one.words, 1000)),
      el("p", {}, `Its programs ran for ${duration(one.ran_seconds)}; exit code ${one.exit_code}; ${clip(one.then, 500)}`),
      one.evidence.length ? el("ul", {}, one.evidence.map((line) => el("li", {}, clip(line)))) : null));
    fill(place, el("p", { class: "current" }, now, used, replaced), ended.length ? ended
      : note("No earlier epoch: the programs were not started a second time.", "nothing"));
  }
  draw();
  return { update: (touched) => (touched.epochs || touched.head) && draw() };
}

/** See `VIEWS` in run.js. */
export function environmentView(place, ctx) {
  const nodes = ctx.store.nodes();
  if (!nodes.length) {
    fill(place, note("No node has a number yet; its environment is known once the run starts.", "nothing"));
    return {};
  }
  const node = nodes.some((slot) => slot.node === Number(ctx.route.node)) ? Number(ctx.route.node) : nodes[0].node;
  const filter = el("input", { type: "search", autocomplete: "off", on: { input: () => apply() } });
  const box = el("div");
  const count = el("p", { "aria-live": "polite" });
  let rows = [];
  const apply = () => {
    const words = filter.value.toLowerCase();
    rows.forEach(({ line, text }) => show(line, text.includes(words)));
    say(count, `${counted(rows.filter(({ line }) => !line.hidden).length, "variable")} shown`);
  };
  fill(place, el("div", { class: "controls" },
    field("Node", choice(nodes.map((slot) => [slot.node, `${slot.node} ${slot.host}`]), node,
      (one) => ctx.go({ node: one }))),
    field("Only what contains", filter)), count, box);
  loaded(box, `the environment of node ${node}`, () => ctx.get("environment", { node }),
    (found) => found.variables.length ? "" : "rdzv sets no variable on this node.",
    (found) => {
      const { whole, body } = table(`Variables of node ${node}`, ["Name", "Value", "Why"]);
      rows = found.variables.map((one) => ({
        text: `${one.name} ${one.value} ${one.reason}`.toLowerCase(),
        line: row([el("code", {}, clip(one.name, 120)), el("code", {}, clip(one.value, 1000)), clip(one.reason, 1000)]),
      }));
      body.append(...rows.map(({ line }) => line));
      apply();
      return [el("p", {}, clip([found.host, found.transport].filter(Boolean).join("; "))), scrolls("Variables", whole),
        found.table ? el("details", {}, el("summary", {}, "Digest of the table of nodes"), el("pre", { tabindex: "0" }, found.table)) : null];
    })();
  return {};
}
