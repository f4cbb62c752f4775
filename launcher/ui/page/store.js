// All that is known of the run that is shown. Pure: no clock, no network, no element.

import { each } from "./features.js";

const MOST_EVENTS = 2000;

/** The slots that have a node, by its number. */
function numbered(slots) {
  return [...slots].filter((slot) => slot.node !== null).sort((a, b) => a.node - b.node);
}

/** The node that runs a rank. */
export function nodeOf(slots, rank) {
  let first = 0;
  return numbered(slots).find((slot) => (first += slot.processes) > rank)?.node;
}

/** Whose lines a log has: rank, node or launcher, and its number; null: nobody's that is known. */
export function ownerOf(source) {
  const found = /^(rank|node|launcher)[- ](\d+)/.exec(source);
  return found && [found[1], Number(found[2])];
}

/** Whose log tells of a slot: in words, and as parts of an address; null: nobody's. */
export function logOf({ node = null, suspect = null }) {
  if (suspect !== null) return [`rank ${suspect}`, { rank: suspect, node: null }];
  return node === null ? null : [`node ${node}`, { node, rank: null }];
}

/** What one change, or several, have touched. */
export class Touched {
  head = false;
  events = false;
  epochs = false;
  slots = new Set();
  parts = new Set(); // names of features
}

/** A run, as State and the Changes after it tell. */
export class Store {
  parts = {};

  constructor(state) {
    this.n = state.n;
    this.head = state.head;
    this.slots = new Map(state.slots.map((slot) => [slot.slot, slot]));
    this.events = state.events.slice(-MOST_EVENTS);
    this.epochs = state.epochs;
    this.#take(state.parts);
  }

  /** Take a change over, and note in `touched` what it touches. */
  apply(change, touched) {
    if (change.n !== undefined) this.n = change.n;
    if (change.head) {
      this.head = change.head;
      touched.head = true;
    }
    for (const slot of change.slots ?? []) {
      this.slots.set(slot.slot, slot);
      touched.slots.add(slot.slot);
    }
    if (change.events) {
      // A stream that was taken up again may repeat some.
      const newest = this.events.at(-1)?.number ?? -Infinity;
      this.events.push(...change.events.filter((event) => event.number > newest));
      this.events = this.events.slice(-MOST_EVENTS);
      touched.events = true;
    }
    if (change.epochs) {
      this.epochs = change.epochs;
      touched.epochs = true;
    }
    this.#take(change.parts, touched);
  }

  #take(parts = {}, touched = null) {
    each(({ name, merge }) => {
      if (!(name in parts)) return;
      this.parts[name] = merge(this.parts[name], parts[name]);
      touched?.parts.add(name);
    });
  }

  /** Events before those that are known. */
  prepend(events) {
    const oldest = this.events[0]?.number ?? Infinity;
    this.events = [...events.filter((event) => event.number < oldest), ...this.events];
  }

  /** The slots, what everybody looks for first. */
  worstFirst() {
    return [...this.slots.values()].sort((a, b) => b.worse - a.worse || a.slot - b.slot);
  }

  /** The slot with the first cause, or for which the others wait. */
  culprit() {
    return [...this.slots.values()].find((slot) => slot.mark);
  }

  /** The culprit, if a log is its own; a launcher's is where no rank is known. */
  culpritOf(source) {
    const slot = this.culprit();
    const [what, number] = ownerOf(source) ?? [];
    if (!slot || !what) return undefined;
    const { node, suspect } = slot;
    const own = what !== "rank" ? number === node && (suspect === null || what === "node")
      : suspect === null ? nodeOf(this.slots.values(), number) === node : number === suspect;
    return own ? slot : undefined;
  }

  /** What people call a slot: its node's number, with the slot where that is another one. */
  nameOf({ slot, node }) {
    if (node === null || node === undefined) return `slot ${slot}`;
    return node === slot ? node : `${node} (slot ${slot})`;
  }

  /** The slots that have a node, by its number. */
  nodes() {
    return numbered(this.slots.values());
  }
}
