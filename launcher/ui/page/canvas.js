// What the pictures share: sharp on any screen, and read by pointer and by keyboard.

const DARK = matchMedia("(prefers-color-scheme: dark)");
const colours = new Map();

/** A colour of the style sheet, as a canvas needs it: of the theme that is shown, which is asked once for each. */
export function colour(name) {
  const key = `${name} ${document.documentElement.dataset.theme} ${DARK.matches}`;
  if (!colours.has(key)) {
    const probe = document.getElementById("probe");
    probe.style.color = `var(--${name})`;
    colours.set(key, getComputedStyle(probe).color);
  }
  return colours.get(key);
}

/** Make a canvas so large, in pixels of the page; without a width in its style it keeps its form. Returns where to draw. */
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const brush = canvas.getContext("2d");
  brush.setTransform(ratio, 0, 0, ratio, 0, 0);
  return brush;
}

const STEPS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

/**
 * Let one cell of a canvas be chosen, by pointer or by arrow keys.
 *
 * `size()` gives columns and rows, `at(x, y)` the cell at a place, and `chosen(column, row)` is
 * called with each.
 */
export function picks(canvas, size, at, chosen) {
  let cell = null;
  const choose = (column, row) => {
    const [columns, rows] = size();
    if (!columns || !rows) return;
    cell = [Math.min(columns - 1, Math.max(0, column)), Math.min(rows - 1, Math.max(0, row))];
    chosen(...cell);
  };
  // A finger that comes down has not moved before.
  for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, (event) => {
    const box = canvas.getBoundingClientRect();
    choose(...at(event.clientX - box.left, event.clientY - box.top));
  });
  canvas.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const [column, row] = cell ?? [-step[0], -step[1]];
    choose(column + step[0], row + step[1]);
  });
}
