// Elements and text. Whatever a peer has said comes in through `clean` and is text, never markup.

const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** The text without what is invisible, or turns or breaks a line: each is shown as U+FFFD. */
export function clean(text) {
  return String(text).replace(UNSEEN, "\ufffd");
}

/** At most so many characters of it: a cell is for a few words. */
export function clip(text, most = 400) {
  const words = String(text ?? "");
  return words.length > most ? `${words.slice(0, most - 1)}…` : words;
}

/** An element; `on` has its listeners, and what is false, null or undefined is left out. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [kind, listener] of Object.entries(value)) made.addEventListener(kind, listener);
    } else if (value !== false && value != null) {
      made.setAttribute(name, value === true ? "" : clean(value));
    }
  }
  add(made, ...children);
  return made;
}

/** Append elements and texts. */
export function add(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child == null || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return parent;
}

/** Replace what is in an element. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  return add(parent, ...children);
}

/** Set an element's text; what is the same is not touched. */
export function say(element, text) {
  const words = clean(text ?? "");
  if (element.textContent !== words) element.textContent = words;
}

/** Show or hide an element. */
export function show(element, yes) {
  if (element.hidden === yes) element.hidden = !yes;
}

/** A word with the colour of its tone; the word says the same. */
export function badge(word, tone) {
  return el("span", { class: `badge ${toned(tone)}` }, clip(word, 40));
}

/** The spot of a colour in a legend. */
export function swatch(colour) {
  const made = el("span", { class: "swatch" });
  made.style.background = colour;
  return made;
}

/** The class of a tone; of one that is not known, that of `off`. */
export function toned(tone) {
  return ["good", "wait", "bad"].includes(tone) ? tone : "off";
}

/** A box in which what is wide or high scrolls, also by keyboard. */
export function scrolls(label, ...children) {
  return el("div", { class: "scrolls", role: "region", "aria-label": label, tabindex: "0" }, children);
}

/** A table: its caption for readers of screens, the names of its columns, its empty body. */
export function table(caption, columns) {
  const body = el("tbody");
  const head = el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)));
  const whole = el("table", {}, el("caption", { class: "unseen" }, caption), el("thead", {}, head), body);
  return { whole, body };
}

/** The cells of a row of it; numbers need less room than words, which may break anywhere. */
export function cellsOf(cells) {
  const short = (cell) => typeof cell === "number" || cell === "";
  return cells.map((cell) => el("td", { class: short(cell) && "short" }, cell));
}

/** A row of it. */
export function row(cells, attributes = {}) {
  return el("tr", attributes, cellsOf(cells));
}

/** A section with a heading. */
export function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), children);
}

/** A field behind its label. */
export function field(label, control) {
  return el("label", { class: "field" }, el("span", {}, label), control);
}

/** A select of pairs: value and words; with a label that is not seen, its options have to say what they are of. */
export function choice(pairs, chosen, change, label) {
  const options = pairs.map(([value, words]) =>
    el("option", { value, selected: String(value) === String(chosen) }, clip(words, 80)));
  return el("select", { "aria-label": label, on: { change: (event) => change(event.target.value) } }, options);
}

/** A paragraph in a box: what a reader has to know; `kind` is what it is, for the style. */
export function note(words, kind = "", attributes = {}) {
  return el("p", { class: `note ${kind}`, ...attributes }, words);
}

/** A button. */
export function button(words, press, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: press } }, words);
}

/**
 * Show what a request brings: that it is under way, that there is nothing, that it has failed, or
 * what has come. Each says so in words. Returns what asks again.
 *
 * `empty(found)` gives the words of "nothing", or ""; `draw(found)` gives what is shown.
 */
export function loaded(place, what, ask, empty, draw) {
  let asked = 0;
  return async function again() {
    const mine = ++asked;
    // What is there stays until its successor has come.
    if (!place.dataset.filled) fill(place, note(`Loading ${what} …`, "loading", { role: "status" }));
    try {
      const found = await ask();
      if (mine !== asked) return;
      const nothing = empty(found);
      place.dataset.filled = "yes";
      fill(place, nothing ? note(nothing, "nothing") : draw(found));
    } catch (error) {
      if (mine !== asked || error.name === "AbortError") return;
      delete place.dataset.filled;
      fill(place, failed(what, error, again));
    }
  };
}

/** What a view whose answer depends on the phase does with changes: ask again in another phase. */
export function eachPhase(ctx, again) {
  let phase = ctx.store.head.state;
  return (touched) => {
    if (!touched.head || ctx.store.head.state === phase) return;
    phase = ctx.store.head.state;
    again();
  };
}

/** That a request has failed, why, and what to do. */
export function failed(what, error, again) {
  return el("div", { class: "note failed", role: "alert" },
    el("p", {}, `Could not load ${what}: ${clip(error.message)}`),
    error.hint ? el("p", {}, `Try: ${clip(error.hint)}`) : null,
    button("Try again", again));
}
