// Lines of many logs in the order of their times, of which only those in view are elements.

import { add, button, clip, el, say, show, toned } from "./dom.js";
import { ownerOf } from "./store.js";
import { clock, counted } from "./words.js";

const MOST_LINES = 100000;
const MORE_LINES = 5000; // so many more are held before the oldest are given up
const BLOCK = 100; // rows that are drawn, or not, together
const ROW_PIXELS = 19; // of a block that has not been drawn yet
const COLOURS = 6;
const WORDS = { e: "error", w: "warning" };

/** A row, or several that are folded into one: `lines` has all of them. */
class Row {
  constructor(line) {
    this.lines = [line];
    this.folds = line.kind === "n";
  }

  takes(line) {
    return this.folds && line.kind === "n";
  }
}

/**
 * The lines, oldest first. It follows its end only where the reader is there.
 *
 * `changed(errors, own)` is called with the number of lines that are errors, of all and of the
 * culprit; `culpritOf` is that of the store.
 */
export class Pane {
  #lines = []; // by `key`
  #rows = []; // the same, with noise folded
  #blocks = []; // an element for each BLOCK of rows
  #new = [];
  #keys = new Map(); // by log, that of its newest line: a log's own order stays
  #newest = 0;
  #known = new Map(); // by log
  #opened = new WeakSet(); // lines of folds that the reader has opened
  #errors = 0;
  #own = 0; // of them the culprit's
  #atEnd = true;
  #frame = 0;

  constructor(changed, culpritOf, names = true) {
    Object.assign(this, { changed, culpritOf, names });
    this.box = el("div", { class: "log", role: "log", tabindex: "0", "aria-label": "Log", "aria-live": "off" });
    this.seen = new IntersectionObserver((found) => found.forEach(({ target, isIntersecting }) => {
      if (isIntersecting) this.#draw(target);
      else this.#undraw(target);
    }), { root: this.box, rootMargin: "600px 0px" });
    // The browser's own way there takes a moment, in which the end of a log that grows moves on.
    this.box.addEventListener("keydown", ({ key }) => { if (key === "End") this.#toEnd(); });
    // A box that becomes smaller shows its end still.
    this.box.addEventListener("scroll", () => { this.#atEnd = this.#follows; });
    this.shape = new ResizeObserver(() => { if (this.#atEnd) this.#toEnd(); });
    this.shape.observe(this.box);
  }

  /** Whether the reader is at the end. */
  get #follows() {
    const { box } = this;
    return box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  }

  close() {
    cancelAnimationFrame(this.#frame);
    this.seen.disconnect();
    this.shape.disconnect();
  }

  clear() {
    this.#lines = [];
    this.#rows = [];
    this.#new = [];
    this.#keys.clear();
    this.#newest = 0;
    this.#errors = this.#own = 0;
    this.#trim(0);
    this.changed(0, 0);
  }

  /** Take lines of one log, with what is known of each: see LogPiece. */
  take(source, lines, times, kinds) {
    lines.forEach((text, at) => this.#hold(source, clip(text, 16384), Number.isFinite(times?.[at]) ? times[at] : null, kinds?.[at] ?? "-"));
    this.#frame ||= requestAnimationFrame(() => this.#flush());
  }

  #hold(source, text, at, kind) {
    const key = Math.max(at ?? this.#newest, this.#keys.get(source) ?? 0); // of no known time: when it came
    this.#newest = Math.max(this.#newest, key);
    this.#keys.set(source, key);
    if (kind === "e") this.#count(source, 1);
    this.#new.push({ source, text, at, kind, key });
  }

  #count(source, errors) {
    this.#errors += errors;
    if (this.#whose(source).mark) this.#own += errors;
  }

  /** Whose lines a log has, in words; its class; and what marks it, where it is the culprit's. */
  #whose(source) {
    if (!this.#known.has(source)) {
      const [what, number] = ownerOf(source) ?? [];
      const { mark = "", tone } = this.culpritOf(source) ?? {};
      const style = mark ? `is-marked is-${toned(tone)}` : what === "rank" ? `of-${number % COLOURS}` : "";
      const name = what ? `${what === "rank" ? what : "node"} ${number}` : clip(source, 60);
      this.#known.set(source, { name, mark, style });
    }
    return this.#known.get(source);
  }

  /** Another one is the culprit now, or nobody. */
  marked() {
    this.#known.clear();
    this.#errors = this.#own = 0;
    for (const { source, kind } of [...this.#lines, ...this.#new]) if (kind === "e") this.#count(source, 1);
    this.changed(this.#errors, this.#own);
    this.#blocks.forEach((block, at) => {
      if (!block.drawn || block.contains(document.activeElement)) return;
      block.replaceChildren();
      this.#fill(block, at);
    });
  }

  /** Put what has come in its place; what is before it stays as it is. */
  #flush() {
    this.#frame = 0;
    const follows = this.#follows;
    const found = this.#new.sort((a, b) => a.key - b.key);
    this.#new = [];
    if (!found.length) return;
    const behind = this.#lines.splice(this.#place(found[0].key));
    const rest = behind.length ? [...behind, ...found].sort((a, b) => a.key - b.key) : found;
    let first = this.#rows.length;
    for (let cut = behind.length; cut > 0;) {
      first -= 1;
      cut -= this.#rows[first].lines.length;
      if (cut < 0) rest.unshift(...this.#lines.splice(cut)); // it was in the middle of a fold
    }
    this.#rows.length = first;
    if (this.#rows.at(-1)?.takes(rest[0])) first -= 1;
    for (const line of rest) {
      this.#lines.push(line);
      if (this.#rows.at(-1)?.takes(line)) this.#rows.at(-1).lines.push(line);
      else this.#rows.push(new Row(line));
    }
    this.#trim(first);
    this.#forget();
    this.changed(this.#errors, this.#own);
    if (follows) this.#toEnd();
  }

  #toEnd() {
    if (this.#blocks.length) this.#draw(this.#blocks.at(-1));
    this.box.scrollTop = this.box.scrollHeight;
  }

  /** Where a line of this key comes in: behind all of the same. */
  #place(key) {
    return this.#lines.findLastIndex((line) => line.key <= key) + 1;
  }

  /** Make the blocks fit the rows, of which those from `first` on are others. */
  #trim(first) {
    const wanted = Math.ceil(this.#rows.length / BLOCK);
    while (this.#blocks.length > wanted) {
      const last = this.#blocks.pop();
      this.seen.unobserve(last);
      last.remove();
    }
    for (let at = Math.floor(first / BLOCK); at < this.#blocks.length; at += 1) {
      const block = this.#blocks[at];
      const kept = Math.max(0, first - at * BLOCK);
      if (block.drawn) {
        while (block.childElementCount > kept) block.lastChild.remove();
        this.#fill(block, at);
      } else this.#reserve(block, at);
    }
    while (this.#blocks.length < wanted) {
      const block = el("div", { class: "block" });
      block.drawn = false;
      this.#blocks.push(block);
      this.#reserve(block, this.#blocks.length - 1);
      this.box.append(block);
      this.seen.observe(block);
    }
  }

  /** Give up the oldest lines, whole blocks of them. */
  #forget() {
    if (this.#lines.length <= MOST_LINES + MORE_LINES) return;
    let [lines, blocks] = [0, 0];
    while (this.#lines.length - lines > MOST_LINES && blocks < this.#blocks.length - 1) {
      for (const row of this.#rows.slice(blocks * BLOCK, (blocks + 1) * BLOCK)) lines += row.lines.length;
      blocks += 1;
    }
    for (const { source, kind } of this.#lines.splice(0, lines)) if (kind === "e") this.#count(source, -1);
    this.#rows.splice(0, blocks * BLOCK);
    for (const block of this.#blocks.splice(0, blocks)) {
      this.seen.unobserve(block);
      block.remove();
    }
  }

  #rowsOf(at) {
    return this.#rows.slice(at * BLOCK, (at + 1) * BLOCK);
  }

  #reserve(block, at) {
    block.style.height = `${this.#rowsOf(at).length * ROW_PIXELS}px`;
  }

  #draw(block) {
    if (block.drawn) return;
    block.drawn = true;
    block.style.height = "";
    this.#fill(block, this.#blocks.indexOf(block));
  }

  #fill(block, at) {
    add(block, this.#rowsOf(at).slice(block.childElementCount).map((row) => row.folds ? this.#fold(row) : this.#line(row.lines[0])));
  }

  #undraw(block) {
    if (!block.drawn || block.contains(document.activeElement) || !getSelection().isCollapsed) return;
    block.style.height = `${block.offsetHeight}px`;
    block.drawn = false;
    block.replaceChildren();
  }

  #line({ source, text, at, kind }) {
    if (kind === "s") return el("div", { class: "said" }, text);
    const { name, mark, style } = this.#whose(source);
    const level = WORDS[kind];
    return el("div", { class: `row ${style} ${level ? `is-${level}` : ""}` },
      at === null ? null : [el("time", {}, clock(at)), " "],
      this.names && name ? [el("span", { class: "who" }, name), " "] : null,
      mark ? el("span", { class: "unseen" }, `${mark} `) : null,
      level ? [el("span", { class: "level" }, level), " "] : null,
      text || " ");
  }

  #fold(row) {
    const nodes = new Set(row.lines.map(({ source }) => source)).size;
    const words = `torchrun's own output: ${counted(row.lines.length, "line")}${nodes > 1 ? ` of ${counted(nodes, "node")}` : ""}`;
    const fold = el("details", { class: "fold", open: row.lines.some((line) => this.#opened.has(line)) }, el("summary", {}, words));
    const open = () => {
      if (fold.open && fold.childElementCount === 1) add(fold, row.lines.map((line) => this.#line({ ...line, kind: "-" })));
      row.lines.forEach((line) => fold.open ? this.#opened.add(line) : this.#opened.delete(line));
    };
    fold.addEventListener("toggle", open);
    if (fold.open) open();
    return fold;
  }

  /** Go to the first line that is an error, of the culprit where it has one; whether there is one. */
  toFirstError() {
    const found = this.#rows.findIndex(({ lines: [{ kind, source }] }) => kind === "e" && (!this.#own || this.#whose(source).mark));
    if (found < 0) return false;
    const at = Math.floor(found / BLOCK);
    for (const near of [at - 1, at, at + 1]) if (this.#blocks[near]) this.#draw(this.#blocks[near]);
    const row = this.#blocks[at].children[found % BLOCK];
    row.tabIndex = -1;
    row.scrollIntoView({ block: "center" });
    row.focus({ preventScroll: true });
    return true;
  }
}

/** What leads to the first error of a pane: a button, and the key `e` anywhere in `place` but in a field. */
export function errorButton(place, go) {
  const [words, key] = [el("span"), el("kbd", {}, "e")];
  const made = button([words, " ", key], go, { "aria-keyshortcuts": "e", disabled: true });
  place.addEventListener("keydown", (event) => {
    const plain = !event.ctrlKey && !event.altKey && !event.metaKey;
    if (event.key !== "e" || !plain || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    go();
  });
  return {
    made,
    update(errors, whose) {
      made.disabled = !errors;
      show(key, Boolean(errors));
      say(words, errors ? `First error${whose}` : "No error");
    },
  };
}
