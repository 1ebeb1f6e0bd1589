// The lists, a column per model: facts above, items below, and what the slider changed.

import { about, chance, count, hits, make, percent } from "./dom.js";
import { TAILS, TAIL_NAME, TAIL_NAMES, nameOf, plain } from "./names.js";

const CHANCE = "chance that this person adopts it, if they go on to adopt as much as was held out to test the model";

const unfolded = new Set(); // the models whose details are open; lists are drawn anew with every change

const WITHOUT = { slider: "with the slider off", rules: "without the rules" };
const WITH = { slider: "with the slider", rules: "with the rules" };

// What the slider, or the rules, did to a list: item → "new", or by how many places it moved up; and how many of the list are new.
export function changes(answer, without) {
  const before = new Map(without.items.map((item) => [item.item, item.rank]));
  const marks = new Map(answer.items.map((item) => [item.item, before.has(item.item) ? before.get(item.item) - item.rank : "new"]));
  return { marks, fresh: [...marks.values()].filter((mark) => mark === "new").length };
}

// One column. entry: {model, colour, answer, without, by, unable}; others: the other entries with an answer; link(item): its page.
// without: the list to compare with, null where there is none; by: what that is without; unable: the slider is on, and not for this model.
export function column(entry, others, mostPopular, link) {
  const { model, answer, without } = entry;
  const id = `list-${entry.place}`;
  const head = make("header", {}, make("h2", { id }, make("span", { class: `swatch ${entry.colour}` }), model.label));
  const section = make("section", { class: `card list ${entry.colour}`, "aria-labelledby": id, "data-model": model.name }, head);
  if (answer.error) {
    section.append(make("p", { class: "box bad" }, answer.error));
    return section;
  }
  const { marks, fresh } = changes(answer, without ?? answer);
  if (entry.unable) {
    section.append(make("p", { class: "box warn unable" }, "This model has no probabilities, which the slider needs, so it makes its own list."));
  }
  section.append(facts(entry, fresh), details(entry, others));
  section.append(...remarks("Some rules could not be met:", answer.unmet.filter(isRule)));
  section.append(...remarks("About this list:", answer.unmet.filter((sentence) => !isRule(sentence))));
  section.append(answer.items.length
    ? make("ol", { class: "items" }, answer.items.map((item) => row(item, moved(marks.get(item.item), entry.by), others, mostPopular, link)))
    : make("p", { class: "soft" }, "Nothing is left to list."));
  return section;
}

const isRule = (sentence) => /^at (least|most) /.test(sentence); // other sentences are about what the model cannot do

const remarks = (title, sentences) => (sentences.length ? [make("div", { class: "box warn unmet" }, make("p", {}, title),
  make("ul", {}, sentences.map((sentence) => make("li", {}, plain(sentence)))))] : []);

const other = (value, by) => [", ", make("span", { class: "soft" }, `${value} ${WITHOUT[by]}`)];

function facts({ answer, without, by }, fresh) {
  const changed = without && make("li", { class: "changed" }, make("b", {}, `${fresh} of ${answer.items.length}`), ` are new ${WITH[by]}`);
  return make("div", { class: "facts" }, shares(answer.shares), make("ul", {}, without && expected(answer, without, by), changed));
}

function expected(answer, without, by) {
  if (answer.expected_hits === null) return make("li", { class: "hits soft" }, "This model has no probabilities");
  return make("li", { class: "hits", title: overUsers(answer.price) }, make("b", {}, hits(answer.expected_hits)),
    ` of ${answer.items.length} expected to be adopted`, without && Math.max(answer.expected_hits, without.expected_hits) >= 1 && other(hits(without.expected_hits), by));
}

// What matters on a second look: popularity, what the lists share, and how the model was made.
function details({ model, answer, without, by }, others) {
  const length = answer.items.length;
  const part = make("details", { class: "about-list", open: unfolded.has(model.name), ontoggle: () => unfolded[part.open ? "add" : "delete"](model.name) },
    make("summary", {}, "Details"),
    make("ul", {}, !without && expected(answer, null, null),
      make("li", {}, make("b", {}, answer.mean_popularity === null ? "–" : about(answer.mean_popularity)), " adopters per item",
        without && without.mean_popularity !== null && other(about(without.mean_popularity), by)),
      ...others.map((one) => make("li", { class: "overlap" }, make("span", { class: `swatch ${one.colour}` }),
        make("b", {}, `${shared(answer, one.answer)} of ${length}`), ` also in ${one.model.label}`))),
    make("dl", { class: "settings" }, settingsOf(model).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
  return part;
}

function settingsOf(model) {
  const known = [["served as", model.name], ["model", model.model], ["loss", model.loss], ["loaded", model.loaded_at]];
  const flat = (values, above = "") => Object.entries(values).flatMap(([name, value]) => (
    value !== null && typeof value === "object" && !Array.isArray(value) ? flat(value, `${above}${name}.`) : [[`${above}${name}`, value === null ? null : String(value)]]));
  return [...known, ...flat(model.settings)].filter(([, value]) => value !== null && value !== "");
}

const overUsers = (price) => price && `On average over users: ${hits(price.hits)} expected to be adopted, ${hits(price.hits_without)} with the slider off`;

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
    make("ul", { class: "split" }, TAILS.map((tail) =>
      make("li", {}, make("span", { class: `dot ${tail}` }), make("b", { "data-share": tail }, percent(values[tail] ?? 0)), ` ${TAIL_NAMES[tail]}`))));
}

function row(item, mark, others, mostPopular, link) {
  const bar = make("span", { class: item.tail });
  bar.style.width = `${Math.max(1.5, (100 * item.popularity) / Math.max(1, mostPopular))}%`;
  const reasons = item.reasons.map((reason) => nameOf(reason));
  const elsewhere = others.flatMap((other) => {
    const same = other.answer.items.find((one) => one.item === item.item);
    return same ? [make("span", { class: "also", title: `number ${same.rank} in ${other.model.label}` }, make("span", { class: `swatch ${other.colour}` }),
      make("span", { class: "unseen" }, `also in ${other.model.label}, number `), same.rank)] : [];
  });
  return make("li", { class: "item", "data-item": item.item, value: item.rank },
    make("span", { class: "rank", "aria-hidden": "true" }, item.rank),
    make("div", { class: "what" },
      make("div", { class: "title-line" }, make("a", { class: "title", href: link(item.item), "data-link": item.item }, nameOf(item)), mark,
        item.probability !== null && make("span", { class: "chance", title: CHANCE }, make("span", { class: "unseen" }, "chance "), chance(item.probability))),
      make("div", { class: "about" }, make("span", { class: `tag ${item.tail}` }, TAIL_NAME[item.tail]),
        make("span", { class: "bar", "aria-hidden": "true" }, bar),
        make("span", { class: "adopters" }, `${count(item.popularity)} ${item.popularity === 1 ? "adopter" : "adopters"}`), elsewhere),
      reasons.length > 0 && make("p", { class: "reason" }, `because of ${reasons.join(", ")}`)));
}

function moved(mark, by) {
  if (mark === "new") return make("span", { class: "moved new", title: `not in the list ${WITHOUT[by]}` }, "new");
  if (!mark) return null;
  const said = `${mark > 0 ? "up" : "down"} ${Math.abs(mark)} ${WITH[by]}`;
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
