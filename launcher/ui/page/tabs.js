// The tabs: their names with what is in them, and the keys that move between them.

import { button, el, fill } from "./dom.js";
import { grouped } from "./words.js";

/** What is in a view: its number or words; "" where that is not counted, null where it is empty. */
const CONTENT = {
  matrix: ({ slots }) => slots.size > 1 ? "" : null,
  checks: ({ head }) => head.checks || (head.over || head.state === "running" ? "" : null),
  epochs: ({ epochs, head }) => epochs.length ? grouped(head.epoch) : null,
  events({ events }) {
    const unusual = events.filter((event) => !event.usual).length;
    return unusual ? grouped(unusual) : events.length ? "" : null;
  },
  environment: (store) => store.nodes().length ? "" : null,
};

/** Make the tabs of these views; `go` is called with the name of one. */
export function makeTabs(list, views, go) {
  const tabs = Object.entries(views).map(([name, [words]]) => button(words, () => go(name),
    { role: "tab", id: `tab-${name}`, "aria-controls": "panel" }));
  fill(list, tabs);
  list.addEventListener("keydown", (event) => {
    const now = tabs.indexOf(document.activeElement);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
    if (now < 0 || next === undefined) return;
    event.preventDefault();
    tabs[next % tabs.length].focus();
    tabs[next % tabs.length].click();
  });
}

/** Select one. */
export function selectTab(list, name) {
  for (const tab of list.children) {
    tab.setAttribute("aria-selected", String(tab.id === `tab-${name}`));
    tab.tabIndex = tab.id === `tab-${name}` ? 0 : -1;
    if (!tab.tabIndex) list.scrollLeft = tab.offsetLeft - list.clientWidth / 3;
  }
}

/** Say in each what is in it; an empty one is dimmed, and says so to who does not see that. */
export function labelTabs(list, views, store) {
  for (const tab of list.children) {
    const name = tab.id.slice(4);
    const [words, , counts = CONTENT[name], kind = ""] = views[name];
    const content = counts ? counts(store) ?? null : "";
    const key = String(content);
    if (tab.dataset.content === key) continue;
    tab.dataset.content = key;
    tab.className = content === null ? "empty" : /fail/.test(content) ? "wrong fails" : kind;
    fill(tab, words, content ? el("span", { class: "count" }, ` ${content}`) : null,
      content === null ? el("span", { class: "unseen" }, " (empty)") : null);
  }
}
