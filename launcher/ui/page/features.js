// What features add to the page: the page.js of each pushes one object here, before run.js begins.

/**
 * Its `name`, and of these what it needs:
 *
 * - `merge(known, news)`: what the store keeps of the feature's part of State and of a Change, as
 *   `store.parts[name]`; nothing is known before the first.
 * - `tab`: its name, the tabs that it stands `before` (those that there are), and its entry in VIEWS of run.js.
 * - `tiles(ctx)`: of "How it is going"; each has a name, words, what stands beside them, and a line of
 *   the last hour, as per cents (the same array is not drawn again).
 * - `note(ctx)`: words above the tiles; "": none.
 * - `column`: of the table of nodes; its `title` and its `words(slot, store)`.
 */
export const FEATURES = [];

/** What is asked of each; one that fails is left out. */
export function each(ask) {
  return FEATURES.flatMap((one) => {
    try {
      return ask(one) ?? [];
    } catch (error) {
      console.error(one.name, error);
      return [];
    }
  });
}
