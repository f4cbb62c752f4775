// What a page may do to a run, each behind a question that says what it does.

import { add, button, clip, el, failed, field, fill, note, say, section, show } from "./dom.js";

const ACTS = {
  cancel: {
    title: "Cancel the run",
    says: "Ends the programs on all nodes. The run then ends as cancelled, and cannot be continued.",
  },
  restart: {
    title: "Restart the programs",
    says: "Stops the programs and starts them again on the same nodes, from their last checkpoint. "
      + "Does not count as one of --max-restarts.",
  },
  drain: {
    title: "Drain a node",
    says: "Sends the programs of all nodes a notice, and stops them before the node leaves. "
      + "The run then ends as with a lost node, or restarts.",
  },
};

function fieldsOf(act, ctx) {
  const reason = el("input", { name: "reason", maxlength: "200", autocomplete: "off" });
  const fields = [field("Reason, for the record", reason)];
  if (act === "drain") {
    const nodes = ctx.store.nodes().map((slot) => el("option", { value: slot.node }, clip(`${slot.node} ${slot.host}`, 60)));
    fields.unshift(field("Node", el("select", { name: "node" }, nodes)),
      field("Seconds until it must be gone", el("input", { name: "seconds", type: "number", min: "0", value: "0" })));
  }
  return fields;
}

function ask(act, ctx, came) {
  const { title, says } = ACTS[act];
  const wrong = el("div");
  const form = el("form", { method: "dialog" });
  const sends = el("button", { type: "submit", class: act === "cancel" ? "danger" : "" }, title);
  const dialog = el("dialog", { "aria-labelledby": "act-title" }, add(form,
    el("h2", { id: "act-title" }, title), el("p", {}, says), fieldsOf(act, ctx), wrong,
    el("div", { class: "buttons" }, sends, button("Do nothing", () => dialog.close()))));
  const send = async () => {
    const given = new FormData(form);
    const body = { act, reason: given.get("reason") };
    if (act === "drain") Object.assign(body, { node: Number(given.get("node")), seconds: Number(given.get("seconds")) });
    sends.disabled = true;
    try {
      came((await ctx.source.act(ctx.run, body)).words);
      dialog.close();
    } catch (error) {
      fill(wrong, failed(`an answer to '${act}'`, error, send));
    }
    sends.disabled = false;
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** The section of acts; hidden where there are none. */
export function acts(ctx) {
  const came = note("", "", { role: "status", hidden: true });
  const heard = (words) => {
    say(came, words);
    show(came, true);
  };
  const buttons = Object.entries(ACTS).map(([act, { title }]) => button(`${title} …`, () => ask(act, ctx, heard)));
  const box = section("Actions", el("div", { class: "buttons" }, buttons), came);
  const update = () => {
    show(box, ctx.actions && !ctx.store.head.over);
    // Before nodes have numbers there is nothing to restart or to drain.
    for (const one of buttons.slice(1)) show(one, ctx.store.nodes().length > 0);
  };
  update();
  return { box, update };
}
