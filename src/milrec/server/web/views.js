// Saved views: names for addresses, in this browser's storage alone. The server never hears of them.

import { byId, make } from "./dom.js";

const KEPT = "milrec-views";
const LONGEST = 60;

function kept() {
  try {
    const views = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(views) ? views.filter((view) => typeof view?.name === "string" && typeof view?.view === "string") : [];
  } catch { // no storage, or something else wrote there
    return [];
  }
}

function keep(views) {
  try {
    if (views.length) localStorage.setItem(KEPT, JSON.stringify(views));
    else localStorage.removeItem(KEPT);
    byId("views-said").textContent = "";
  } catch {
    byId("views-said").textContent = "This browser does not let the page keep anything.";
  }
  showViews();
}

function showViews() {
  const views = kept();
  byId("views-title").textContent = views.length ? `Saved views (${views.length})` : "Saved views";
  byId("views").replaceChildren(...views.map((view) => make("li", {},
    make("a", { href: `#${view.view}`, onclick: () => close() }, view.name),
    make("button", { type: "button", class: "cross", "aria-label": `Remove the view ${view.name}`, onclick: () => {
      keep(kept().filter((one) => one.name !== view.name));
      (byId("views").querySelector("button") ?? byId("view-name")).focus();
    } }, "×"))));
}

function close() {
  byId("views-part").open = false;
}

// current(): the address of what is shown, without the #.
export function listenToViews(current) {
  byId("view-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = byId("view-name").value.trim().slice(0, LONGEST);
    if (!name) return;
    byId("view-name").value = "";
    keep([...kept().filter((one) => one.name !== name), { name, view: current() }]);
  });
  byId("views-part").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !byId("views-part").open) return;
    close();
    byId("views-title").focus();
  });
  addEventListener("pointerdown", (event) => {
    if (!byId("views-part").contains(event.target)) close();
  });
  addEventListener("storage", showViews); // another tab saved one
  showViews();
}
