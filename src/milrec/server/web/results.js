// The lists, a column per model: facts above, items below, and what the dial changed.

import { about, chance, count, hits, make, percent } from "./dom.js";

const TAILS = ["short", "medium", "long"];
const CHANCE = "chance that this user adopts it, if they go on to adopt as much as was held out for validation";

export const nameOf = (item) => item.title ?? item.item;

// What the dial did to a list: item → "new", or by how many places it moved up; and how many of the list are new.
export function changes(answer, without) {
  const before = new Map(without.items.map((item) => [item.item, item.rank]));
  const marks = new Map(answer.items.map((item) => [item.item, before.has(item.item) ? before.get(item.item) - item.rank : "new"]));
  return { marks, fresh: [...marks.values()].filter((mark) => mark === "new").length };
}

// One column. entry: {model, colour, answer, without, unable}; others: the other entries with an answer.
// without: the answer with the dial off, null where it is off; unable: the dial is on, and not for this model.
export function column(entry, others, mostPopular) {
  const { model, answer, without } = entry;
  const id = `list-${entry.place}`;
  const head = make("header", {},
    make("h2", { id }, make("span", { class: `swatch ${entry.colour}` }), model.name),
    make("p", { class: "soft" }, [model.model, model.loss].filter(Boolean).join(", ")));
  const section = make("section", { class: "card list", "aria-labelledby": id, "data-model": model.name }, head);
  if (answer.error) {
    section.append(make("p", { class: "box bad" }, answer.error));
    return section;
  }
  const { marks, fresh } = changes(answer, without ?? answer);
  if (entry.unable) {
    section.append(make("p", { class: "box warn unable" }, "This model has no probabilities, which the dial goes by: its list is as the model makes it."));
  }
  section.append(facts(entry, fresh, others));
  if (answer.unmet.length) {
    section.append(make("div", { class: "box warn unmet" }, make("p", {}, "Some rules could not be met:"),
      make("ul", {}, answer.unmet.map((sentence) => make("li", {}, sentence)))));
  }
  section.append(answer.items.length
    ? make("ol", { class: "items" }, answer.items.map((item) => row(item, marks.get(item.item), others, mostPopular)))
    : make("p", { class: "soft" }, "Nothing is left to list."));
  return section;
}

function facts({ answer, without, unable }, fresh, others) {
  const length = answer.items.length;
  const off = (value) => [", ", make("span", { class: "soft" }, `${value} with the dial off`)];
  const lines = [
    answer.expected_hits === null
      ? !unable && make("li", { class: "hits soft" }, "This model has no probabilities")
      : make("li", { class: "hits", title: overUsers(answer.price) }, make("b", {}, hits(answer.expected_hits)), " expected hits", without && off(hits(without.expected_hits))),
    make("li", {}, make("b", {}, answer.mean_popularity === null ? "–" : about(answer.mean_popularity)), " adopters per item",
      without && without.mean_popularity !== null && off(about(without.mean_popularity))),
    without
      ? make("li", { class: "changed" }, make("b", {}, `${fresh} of ${length}`), " are here because of the dial")
      : !unable && make("li", { class: "changed soft" }, "The dial is off"),
    ...others.map((other) => make("li", { class: "overlap" }, make("span", { class: `swatch ${other.colour}` }),
      make("b", {}, `${shared(answer, other.answer)} of ${length}`), ` also in ${other.model.name}`)),
  ];
  return make("div", { class: "facts" }, shares(answer.shares), make("ul", {}, lines));
}

const overUsers = (price) => price && `On average over users: ${hits(price.hits)} expected hits, ${hits(price.hits_without)} with the dial off`;

function shared(answer, other) {
  const there = new Set(other.items.map((item) => item.item));
  return answer.items.filter((item) => there.has(item.item)).length;
}

function shares(values) {
  const parts = TAILS.map((tail) => {
    const part = make("span", { class: tail });
    part.style.flexGrow = values[tail] ?? 0;
    return part;
  });
  return make("div", { class: "shares" }, make("div", { class: "stack", "aria-hidden": "true" }, parts),
    make("ul", { class: "legend" }, TAILS.map((tail) =>
      make("li", {}, make("span", { class: `dot ${tail}` }), `${tail} `, make("b", { "data-share": tail }, percent(values[tail] ?? 0))))));
}

function row(item, mark, others, mostPopular) {
  const bar = make("span", { class: item.tail });
  bar.style.width = `${Math.max(1.5, (100 * item.popularity) / Math.max(1, mostPopular))}%`;
  const reasons = item.reasons.map((reason) => nameOf(reason));
  const elsewhere = others.flatMap((other) => {
    const same = other.answer.items.find((one) => one.item === item.item);
    return same ? [make("span", { class: `also ${other.colour}`, title: `also in ${other.model.name}, at ${same.rank}` },
      make("span", { class: "unseen" }, "also in "), `${other.model.name} ${same.rank}`)] : [];
  });
  return make("li", { class: "item", "data-item": item.item, value: item.rank },
    make("span", { class: "rank", "aria-hidden": "true" }, item.rank),
    make("div", { class: "what" },
      make("div", { class: "title-line" }, make("span", { class: "title" }, nameOf(item)), moved(mark),
        item.probability !== null && make("span", { class: "chance", title: CHANCE }, make("span", { class: "unseen" }, "chance "), chance(item.probability))),
      make("div", { class: "about" }, make("span", { class: `tail ${item.tail}` }, `${item.tail} tail`),
        make("span", { class: "bar", "aria-hidden": "true" }, bar),
        make("span", { class: "adopters" }, `${count(item.popularity)} ${item.popularity === 1 ? "adopter" : "adopters"}`)),
      reasons.length > 0 && make("p", { class: "reason" }, `because of ${reasons.join(", ")}`),
      elsewhere.length > 0 && make("p", { class: "elsewhere" }, elsewhere)));
}

function moved(mark) {
  if (mark === "new") return make("span", { class: "moved new", title: "not in the list with the dial off" }, "new");
  if (!mark) return null;
  const said = `${mark > 0 ? "up" : "down"} ${Math.abs(mark)} by the dial`;
  return make("span", { class: `moved ${mark > 0 ? "up" : "down"}`, title: said },
    make("span", { "aria-hidden": "true" }, `${mark > 0 ? "▲" : "▼"} ${Math.abs(mark)}`), make("span", { class: "unseen" }, said));
}

// Put the columns on the page; an item that stays in its list slides to its new place.
export function showColumns(place, columns) {
  const key = (row) => `${row.closest("section").dataset.model}\n${row.dataset.item}`;
  const before = new Map([...place.querySelectorAll(".item")].map((row) => [key(row), row.offsetTop]));
  place.replaceChildren(...columns);
  place.tabIndex = place.scrollWidth > place.clientWidth ? 0 : -1; // where it scrolls sideways, by keyboard too
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const row of place.querySelectorAll(".item")) {
    const old = before.get(key(row));
    if (old === undefined || old === row.offsetTop) continue;
    row.animate([{ transform: `translateY(${old - row.offsetTop}px)` }, { transform: "none" }], { duration: 260, easing: "ease-out" });
  }
}
