// Times and numbers in the one form in which rdzv's commands write them.

/** `4.2 s`, `45 s`, `2 min 10 s`, `40 min`, `3 h`. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 9.95) return `${Math.max(0, seconds).toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 120) return `${whole} s`;
  if (whole < 600) return whole % 60 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${whole / 60} min`;
  return whole < 7200 ? `${Math.floor(whole / 60)} min` : `${Math.floor(whole / 3600)} h`;
}

/** A time that counts on: whole seconds, so that it does not flicker. */
export function counting(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [h, min, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (h) return `${h} h ${min} min`;
  return min ? `${min} min ${s} s` : `${s} s`;
}

/** `0.12 ms`, `230 ms`. */
export function milliseconds(ms) {
  return ms >= 10 ? `${ms.toFixed(0)} ms` : `${Number(ms.toPrecision(2))} ms`;
}

/** `1,234`. */
export function grouped(number) {
  return Number(number).toLocaleString("en-US");
}

/** `1 node`, `2 nodes`. */
export function counted(number, noun) {
  return `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** A date by the clock of who looks; empty: not known. */
export function date(seconds) {
  if (!seconds) return "";
  const at = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** `14:03:07`, by the clock of who looks. */
export function clock(seconds) {
  return new Date(seconds * 1000).toTimeString().slice(0, 8);
}

/** `12.345`, of a value that may be a text such as NaN. */
export function value(found) {
  if (typeof found !== "number") return String(found);
  const size = Math.abs(found);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? Number(found.toPrecision(4)).toExponential() : String(Number(found.toPrecision(5)));
}
