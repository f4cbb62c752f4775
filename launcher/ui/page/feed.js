// Keeps the state of a run up to date: by a stream, or where a proxy holds that back, by asking.

const SILENCE_MS = 15000; // the server beats each 10 s
const AGAIN_MS = 1000;
const LATER_MS = 5000; // of a run that is over: its page may have ended with it, or it is launched again
const HIDDEN_MS = 300000; // a page that nobody sees for so long stops its stream

function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

/**
 * The connection of the page to one run.
 *
 * `on` has: state(state), change(change), link(up, error), closed() when the session is over,
 * failed(error).
 */
export class Feed {
  polls = false;
  #stopped = false;
  #quiet = 0;
  #deaf = false; // a stream that had come has fallen silent: no proxy holds it back
  #after = null;
  #over = false;
  #abort = null;
  #hidden = null;
  #seen = Promise.resolve(); // pending while the page is hidden for long
  #wake = () => {};

  constructor(source, run, on) {
    Object.assign(this, { source, run, on });
    this.look = () => this.#look();
    document.addEventListener("visibilitychange", this.look);
    this.#keep();
  }

  stop() {
    this.#stopped = true;
    this.#abort?.abort();
    clearTimeout(this.#hidden);
    this.#wake();
    document.removeEventListener("visibilitychange", this.look);
  }

  async #keep() {
    while (!this.#stopped) {
      try {
        await this.#seen;
        if (this.#after === null) await this.#begin();
        else if (this.polls) await this.#poll();
        else await this.#stream();
      } catch (error) {
        if (this.#stopped) return;
        if (error.status === 401) return this.on.closed();
        if ([403, 404].includes(error.status) || error.code === "other_protocol") return this.on.failed(error);
        if (error.name !== "AbortError") {
          this.on.link(false, error);
          await pause(this.#over ? LATER_MS : AGAIN_MS);
        }
      }
    }
  }

  async #begin() {
    const state = await this.source.get(this.run, "state");
    if (this.#stopped) return;
    this.#after = state.n;
    this.#over = state.head.over;
    this.on.state(state);
    this.on.link(true);
  }

  async #poll() {
    const signal = AbortSignal.any([this.#signal(), AbortSignal.timeout(SILENCE_MS)]);
    const found = await this.source.get(this.run, "changes", { after: this.#after }, signal);
    this.on.link(true);
    found.forEach((change) => this.#take(change));
    await pause(AGAIN_MS / 4);
  }

  async #stream() {
    const signal = this.#signal();
    const mine = this.#abort;
    let beats = 0;
    const silent = () => {
      if (beats) {
        this.#deaf = true;
        this.on.link(false, { message: "nothing comes any more", hint: "check that your tunnel is open" });
      }
      mine.abort();
    };
    let watch = setTimeout(silent, SILENCE_MS);
    const beat = () => {
      beats += 1;
      this.#quiet = 0;
      if (this.#deaf) this.on.link(true);
      this.#deaf = false;
      clearTimeout(watch);
      watch = setTimeout(silent, SILENCE_MS);
    };
    const began = performance.now();
    try {
      const up = () => this.#deaf || this.on.link(true);
      const pieces = this.source.lines(this.run, "stream", { after: this.#after }, signal, up, beat);
      for await (const change of pieces) {
        if (this.#stopped || this.#take(change)) return;
      }
      if (performance.now() - began < AGAIN_MS) await pause(AGAIN_MS);
    } finally {
      clearTimeout(watch);
      const waited = performance.now() - began >= SILENCE_MS - AGAIN_MS;
      if (!beats && waited && !this.#deaf && ++this.#quiet >= 2) this.polls = true;
    }
  }

  /** Whether this stream is to be left. */
  #take(change) {
    if (change.reset) {
      this.#after = null;
      return true;
    }
    if (change.n !== undefined) this.#after = change.n;
    if (change.head) this.#over = change.head.over;
    if (!change.beat) this.on.change(change);
    return false;
  }

  #signal() {
    this.#abort = new AbortController();
    return this.#abort.signal;
  }

  #look() {
    clearTimeout(this.#hidden);
    this.#wake();
    if (!document.hidden) return;
    this.#hidden = setTimeout(() => {
      this.#seen = new Promise((wake) => {
        this.#wake = wake;
      });
      this.#abort?.abort();
    }, HIDDEN_MS);
  }
}
