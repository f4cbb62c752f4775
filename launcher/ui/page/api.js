// Requests. Every address is relative: the page may be behind any prefix, proxy or tunnel.

import { nodeOf, ownerOf } from "./store.js";

/** What a request failed with, in the words of the server; status 0: nothing answered. */
export class Refused extends Error {
  constructor(status, { code = "", message = "", hint = "" } = {}) {
    super(message || (status ? `the server answered ${status}` : "the server does not answer"));
    Object.assign(this, { name: "Refused", status, code, hint });
  }
}

const MOST_MS = 30000;
const HELD = "rdzv-session";
const SENT = { "content-type": "application/json" };
const PROTOCOL = "x-rdzv-protocol"; // what the page's server has written into it

/** What POST session gave, as long as this tab lives; null: nothing yet. */
export function heldSession() {
  try {
    return JSON.parse(sessionStorage.getItem(HELD));
  } catch {
    return null; // storage may be switched off, and is then as good as empty
  }
}

/** Keep it, or with null forget it. */
export function holdSession(opened) {
  try {
    if (opened) sessionStorage.setItem(HELD, JSON.stringify(opened));
    else sessionStorage.removeItem(HELD);
  } catch {
    // the page works until it is loaded again
  }
}

async function answered(path, options) {
  const spoken = document.querySelector(`meta[name="${PROTOCOL}"]`).content;
  const headers = { [PROTOCOL]: spoken, ...options.headers };
  let answer;
  try {
    answer = await fetch(`ui-api/${path}`, { cache: "no-store", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { hint: "check that 'rdzv ui' still runs and that your tunnel is open" });
  }
  if (answer.ok) return answer;
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // a proxy in between has no such words
  }
  throw new Refused(answer.status, said);
}

/** Open a session with a ticket or a key. */
export async function openSession(secret) {
  const body = JSON.stringify(secret);
  return (await answered("session", { method: "POST", body, headers: SENT })).json();
}

/** The query of a path; what is empty, null or undefined is left out, a list is repeated. */
function query(values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== "" && one != null && one !== false) found.append(name, one === true ? 1 : one);
    }
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}

/** The objects of NDJSON, as they come; `beat` is called for each piece of it, whatever it is. */
async function* objectsOf(body, beat) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value: piece } = await reader.read();
      if (done) return;
      beat();
      const lines = (rest + piece).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.trim()) yield JSON.parse(line);
    }
  } catch (error) {
    throw error.name === "AbortError" ? error : new Refused(0, { message: "the connection was cut" });
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The server, for who has a session. */
export class Live {
  saved = null;

  constructor(opened) {
    this.opened = opened;
  }

  async #ask(path, options = {}) {
    const headers = { "x-rdzv-session": this.opened.session, ...options.headers };
    return answered(path, { ...options, headers });
  }

  async runs() {
    return (await this.#ask("runs")).json();
  }

  /** One of a run's answers: state, changes, checks, matrix, .. */
  async get(run, what, values = {}, signal = AbortSignal.timeout(MOST_MS)) {
    const path = `runs/${encodeURIComponent(run)}/${what}${query(values)}`;
    return (await this.#ask(path, { signal })).json();
  }

  /** One of a run's streams, object by object; `begun` is called once the server has answered. */
  async *lines(run, what, values, signal, begun = () => {}, beat = () => {}) {
    const path = `runs/${encodeURIComponent(run)}/${what}${query(values)}`;
    const { body } = await this.#ask(path, { signal });
    begun();
    yield* objectsOf(body, beat);
  }

  async act(run, act) {
    const options = { method: "POST", body: JSON.stringify(act), headers: SENT };
    return (await this.#ask(`runs/${encodeURIComponent(run)}/acts`, options)).json();
  }
}

/** The same of a saved file, which holds all there is. */
export class Kept {
  opened = { actions: false };

  constructor(saved) {
    this.saved = saved;
  }

  async get(run, what, values = {}) {
    if (what === "events") return [];
    if (what !== "environment") return this.saved.views[what];
    const found = this.saved.environments[values.node];
    if (!found) throw new Refused(404, { message: `the environment of node ${values.node} is not in this file` });
    return found;
  }

  async *lines(run, what, { rank = "", node = "", grep = [] }) {
    const { slots } = this.saved.state;
    const owner = (piece) => ownerOf(piece.source) ?? [];
    const ownLogs = this.saved.logs.some((piece) => owner(piece)[0] === "rank");
    const chosen = (piece) => {
      const [whose, number] = owner(piece);
      if (rank !== "") return ownLogs ? whose === "rank" && number === Number(rank) : whose === "node" && number === nodeOf(slots, Number(rank));
      return node === "" || (whose === "rank" ? nodeOf(slots, number) : number) === Number(node);
    };
    const has = (line) => !grep.length || grep.some((word) => line.includes(word));
    for (const piece of this.saved.logs) {
      if (piece.source && !chosen(piece)) continue;
      const { lines = [], at, kinds = "" } = piece;
      const kept = [...lines.keys()].filter((one) => has(lines[one]));
      yield { ...piece, lines: kept.map((one) => lines[one]), at: at && kept.map((one) => at[one]), kinds: kept.map((one) => kinds[one] ?? "-").join("") };
    }
    yield { over: true };
  }
}
