// The page of one item: facts, its place on the curve, what it is listed with, similar items, and two things to do.

import * as api from "./api.js";
import { placeFigure } from "./curve.js";
import { byId, count, make } from "./dom.js";
import { learnCurve } from "./learnt.js";
import { TAIL_NAME, nameOf } from "./names.js";

const ROWS = 8;
const TABLES = ["listed with", "similar"];
const COMPANY = ["item-company-title", "Listed together with"]; // the id and the text of a heading
const SIMILAR = ["item-similar-title", "Similar items"];
const LIKENESS = {
  blend: "By the model, and by how many people adopted both. 1 is the nearest that this model finds for this item, so values of different items are not comparable.",
  own: "The model decides alone, as it was saved without its users. 1 is the nearest that it finds for this item, so values of different items are not comparable.",
};

const HELD = { liked: "likes", disliked: "dislikes" };

let shown = null; // what stands there now: {item, model, curve, held, tables}

// The item as one of the chosen models sees it. actions: {link(item), like(item), dislike(item), forgetLiked(item), forgetDisliked(item),
// by(model), back, filled(), fail(error), held}; held: "liked" or "disliked" where the item is in the taste already, null where it is not.
// What takes the server longer, other items, is filled in when it comes.
export async function showItem(id, model, chosen, actions, signal) {
  const [item, curve] = await Promise.all([settled(api.oneItem(model.name, id, signal)), learnCurve(model, signal)]);
  if (signal.aborted) return;
  if (isNoAnswer(item.error)) throw item.error;
  shown = item.error ? null : { item: item.value, model, curve, held: actions.held, tables: {} };
  const parts = [waitingPart(COMPANY), waitingPart(SIMILAR)];
  byId("item-view").replaceChildren(back(actions), ...(item.error
    ? [make("h2", { id: "item-title", tabindex: -1 }, id), make("p", { class: "box bad", role: "alert" }, item.error.message)]
    : [head(item.value, model, actions), according(model, chosen, actions), make("div", { class: "sides" }, place(item.value, curve), ...parts)]));
  byId("item-view").setAttribute("aria-labelledby", "item-title");
  if (!shown) return;
  drawPlace();
  fill(parts[0], "listed with", api.listedWith(model.name, id, ROWS, signal), companyPart, actions);
  fill(parts[1], "similar", api.similarItems(model.name, id, ROWS, signal), similarPart, actions);
}

const settled = (asked) => asked.then((value) => ({ value }), (error) => ({ error }));
const isNoAnswer = (error) => error?.name === "AbortError" || error instanceof api.KeyNeeded;

// Put a part of the page in its place when its answer comes, unless the page shows something else by then.
async function fill(waiting, name, asked, part, actions) {
  const own = shown;
  const { value, error } = await settled(asked);
  if (own !== shown || error?.name === "AbortError") return;
  if (isNoAnswer(error)) return actions.fail(error);
  own.tables[name] = value?.items ?? [];
  waiting.replaceWith(part(value, error, actions));
  actions.filled();
}

export const itemShown = () => shown;

// The other items on the page, once all of them are there.
export const itemTables = () => (shown && TABLES.every((name) => shown.tables[name]) ? Object.fromEntries(TABLES.map((name) => [name, shown.tables[name]])) : null);

export function drawPlace() {
  const figure = byId("item-curve");
  if (figure && shown) figure.replaceChildren(placeFigure(shown.curve, shown.item, Math.max(260, figure.clientWidth)));
}

const back = (actions) => make("p", { class: "back" }, make("a", { href: actions.back, id: "item-back" }, "← Back to the lists"));

function head(item, model, actions) {
  const button = (id, text, action, kind) => make("button", { type: "button", id, class: kind, onclick: () => action(item) }, text);
  return make("header", { class: "card item-head" },
    make("div", {},
      make("h2", { id: "item-title", tabindex: -1 }, nameOf(item)),
      make("ul", { class: "item-facts" },
        make("li", {}, make("span", { class: `tag ${item.tail}` }, TAIL_NAME[item.tail])),
        make("li", {}, make("b", {}, count(item.popularity)), ` of ${count(model.n_users)} people adopted it`),
        make("li", {}, "place ", make("b", {}, count(item.place)), ` of ${count(model.n_items)} by popularity`),
        item.title !== null && make("li", { class: "soft" }, `id ${item.item}`)),
      make("p", { class: "soft", id: "item-now" })),
    make("div", { class: "item-do" },
      actions.held === "liked" ? button("item-like", "Remove from your likes", actions.forgetLiked) : button("item-like", "More like this", actions.like, "primary"),
      actions.held === "disliked" ? button("item-dislike", "Remove from your dislikes", actions.forgetDisliked) : button("item-dislike", "Not for me", actions.dislike)));
}

// Where the item stands in the lists that were made for the taste or the user of the page.
export function showItemRanks(entries) {
  if (!shown || !byId("item-now")) return;
  if (shown.held) {
    byId("item-now").textContent = `It is among your ${HELD[shown.held]}, so no list has it.`;
    return;
  }
  const said = entries.map(({ model, answer }) => {
    const here = answer.items.find((one) => one.item === shown.item.item);
    return `${model.label}: ${here ? `number ${here.rank}` : "not listed"}`;
  });
  byId("item-now").textContent = said.length ? `In the lists you came from – ${said.join(" · ")}` : "";
}

function according(model, chosen, actions) {
  if (chosen.length < 2) return "";
  return make("fieldset", { class: "models by" }, make("legend", {}, "According to"), ...chosen.map((one) => make("label", { class: "model" },
    make("input", { type: "radio", name: "by", value: one.name, checked: one.name === model.name, onchange: () => actions.by(one) }),
    make("span", {}, make("span", { class: `swatch ${one.colour}` }), one.label))));
}

const section = (id, title, ...parts) => make("section", { class: "card", "aria-labelledby": id }, make("h3", { id }, title), ...parts);

function place(item, curve) {
  const size = { short: curve.cuts.short, medium: curve.cuts.medium - curve.cuts.short, long: curve.n_items - curve.cuts.medium }[item.tail];
  const which = { short: "the most adopted ones, a third of all adoptions", medium: "known, but no hits: another third of all adoptions", long: "the least adopted ones, which share the last third of all adoptions" }[item.tail];
  const name = { short: "The hits", medium: "The middle", long: "The long tail" }[item.tail];
  return section("item-place-title", "Its place in the catalogue", make("div", { class: "plot", id: "item-curve" }),
    make("p", { class: "soft" }, `${name}: ${count(size)} of ${count(curve.n_items)} items, ${which}.`));
}

function waitingPart(heading) {
  const part = section(...heading, make("p", { class: "soft" }, "The server is working this out …"));
  part.setAttribute("aria-busy", "true");
  return part;
}

function companyPart(company, error, actions) {
  if (error) return section(...COMPANY, make("p", { class: "soft" }, error.message));
  const { items, listed, n_lists } = company;
  const said = listed
    ? `This item is in ${count(listed)} of ${count(n_lists)} sample lists, each for someone who likes one other item. These are in the same lists most often.`
    : `This item is in none of ${count(n_lists)} sample lists, each for someone who likes one other item. It may still be in lists for longer tastes.`;
  return section(...COMPANY, make("p", { class: "soft", id: "company-said" }, said),
    rows(items, (one) => `${count(one.lists)} ${one.lists === 1 ? "list" : "lists"}`, actions));
}

function similarPart(similar, error, actions) {
  if (error) return section(...SIMILAR, make("p", { class: "soft" }, error.message));
  return section(...SIMILAR, make("p", { class: "soft", id: "similar-said" }, LIKENESS[similar.measure]),
    rows(similar.items, (one) => one.likeness.toFixed(2), actions));
}

const rows = (items, value, actions) => make("ol", { class: "short-list" }, items.map((one) => make("li", { "data-item": one.item },
  make("a", { class: "title", href: actions.link(one.item), "data-link": one.item }, nameOf(one)),
  make("span", { class: `tag ${one.tail}` }, TAIL_NAME[one.tail]), make("span", { class: "value" }, value(one)))));
