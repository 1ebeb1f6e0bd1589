// The models that the server has: their colours, and which of them are compared.

import { byId, count, make } from "./dom.js";
import { withNames } from "./names.js";
import { MOST_MODELS } from "./state.js";

const COLOURS = { mil: "mil", pointwise: "ce", multinomial: "multi" };

export const sameModels = (some, others) => some.length === others.length && some.every((one, at) => one.name === others[at].name && one.fitted.fingerprint === others[at].fitted.fingerprint);

// As the page shows them: each with a colour and a plain name.
export function dressed(known) {
  const taken = new Set();
  return withNames(known).map((model, at) => {
    const own = COLOURS[model.loss];
    const colour = own && !taken.has(own) ? own : `series-${at % 12}`;
    taken.add(colour);
    return { ...model, colour };
  });
}

// Those of the address that the server has; without any, the first few. say(sentence): what was wrong.
export function chooseModels(wanted, models, say) {
  const known = models.map((model) => model.name);
  for (const name of wanted.filter((one) => !known.includes(one))) say(`This server has no model '${name}'; it has: ${known.join(", ")}.`);
  const found = wanted.filter((name) => known.includes(name));
  if (found.length > MOST_MODELS) say(`Up to ${MOST_MODELS} models fit side by side; the first ${MOST_MODELS} of the link are shown.`);
  return (found.length ? found : known.slice(0, 3)).slice(0, MOST_MODELS);
}

// choose(names): other models are to be compared.
export function showModels(names, models, choose) {
  const full = names.length >= MOST_MODELS;
  const box = (model) => {
    const on = names.includes(model.name);
    const alone = on && names.length === 1;
    const input = make("input", { type: "checkbox", value: model.name, checked: on, disabled: alone || (full && !on), onchange: () => {
      choose(on ? names.filter((name) => name !== model.name) : [...names, model.name]);
    } });
    return make("label", { class: "model" }, input, make("span", {}, make("span", { class: `swatch ${model.colour}` }), model.label));
  };
  const focused = document.activeElement?.closest("#models") && document.activeElement.value;
  byId("models").hidden = models.length < 2;
  byId("models").replaceChildren(make("legend", {}, models.length > MOST_MODELS ? `Compare up to ${MOST_MODELS}` : "Compare"), ...models.map(box));
  if (focused) [...byId("models").querySelectorAll("input")].find((input) => input.value === focused)?.focus();
}

// What the catalogue holds, and its three parts, explained where lists first speak of them.
export function showCatalogue({ n_users, n_items, n_interactions, intervals }) {
  byId("catalogue").textContent = `${count(n_items)} items · ${count(n_users)} people · ${count(n_interactions)} adoptions`;
  const roomy = (text) => make("span", { class: "roomy" }, text); // left out on a phone
  const part = (tail, name, before, after) => make("li", {}, make("span", { class: `dot ${tail}` }), make("b", {}, name), " ", roomy(before), count(intervals[tail]), roomy(after));
  byId("tails").replaceChildren(
    part("short", "Hits:", "the ", " most adopted"),
    part("medium", "Middle:", "the next ", ""),
    part("long", "Long tail:", "the other ", ""),
    make("li", { class: "roomy" }, "Each part gets a third of all adoptions."));
}
