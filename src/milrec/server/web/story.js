// The story that the page opens with: what the loss is about, an example from the data, one thing to try.

import * as api from "./api.js";
import { byId, percent } from "./dom.js";
import { keepItem } from "./learnt.js";
import { joined, nameOf } from "./names.js";
import { isTurned } from "./state.js";

const SEEN = 20; // places that the story counts in: as many as a list has, unless that is changed
const MORE = 30; // percent that the button asks for, or more where lists have that much by themselves
const SMALL = 0.03; // of lists: nobody feels a smaller difference on average

const PATIENCE = 1500; // milliseconds that the page waits for the example before it opens without

let told = null; // {models, liked, names}, once the server has told it
let asked = null; // what the server is being asked for, or has told
let askedFor = ""; // the models it was asked for

// The example for the models that are served now; null where the server has none.
export function learnStory(models) {
  const key = JSON.stringify(models.map((model) => [model.name, model.fitted.fingerprint]));
  if (!asked || askedFor !== key) {
    const own = (asked = hearStory(models).then((story) => {
      if (own !== asked) return story; // it is about models that were replaced
      told = story;
      if (!story) asked = null; // the page invites instead, and asks again the next time
      return story;
    }, (error) => {
      if (own === asked) asked = null;
      throw error;
    }));
    askedFor = key;
  }
  return asked;
}

// The same, or null if it does not come soon.
export function learnStorySoon(models) {
  return Promise.race([learnStory(models), new Promise((resolve) => setTimeout(resolve, PATIENCE, null))]);
}

async function hearStory(models) {
  try {
    const { adopted, models: names } = await api.story();
    const owner = models.find((model) => model.name === names[0]);
    for (const item of adopted) keepItem(owner, item);
    return { models: names, liked: adopted.map((item) => item.item), titles: adopted.map(nameOf) };
  } catch (error) {
    if (error instanceof api.KeyNeeded) throw error;
    return null;
  }
}

const same = (some, others) => some.length === others.length && some.every((one) => others.includes(one));
const isExample = (state) => told !== null && state.who === "taste" && !state.disliked.length && same(state.liked, told.liked);

// What the button adds to the rules, and takes away again: a part of every list for the long tail. A rule holds for
// each list, whereas the slider aims at an average over users, which the list for a taste of a few items can be far from.
const isMore = (rule) => rule.tail === "long" && rule.sign === ">=" && rule.unit === "%" && !rule.first;

export const moreRule = (rules) => rules.find(isMore);

export const withoutMore = (rules) => rules.filter((rule) => !isMore(rule));

export function triedRules(rules, entries) {
  if (rules.some(isMore)) return withoutMore(rules);
  const own = Math.max(0, ...entries.map((entry) => 100 * (entry.answer.shares.long ?? 0)));
  const amount = own < MORE ? MORE : Math.min(100, 10 * Math.floor(own / 10) + 20);
  return [...rules, { tail: "long", sign: ">=", amount, unit: "%", first: null }];
}

// Which part of the lists hits fill, as measured on validation, whatever the example shows.
function onAverage(ours, chosen) {
  if (!ours.tail_shares) return "";
  const apart = (model) => Math.abs(model.tail_shares.short - ours.tail_shares.short);
  const [other] = chosen.filter((model) => model !== ours && model.tail_shares).sort((one, two) => apart(two) - apart(one));
  if (!other) return "";
  if (apart(other) < SMALL) return ` On average over users, it lists about as many hits as ${other.label}; for single tastes they differ.`;
  return ` On average over users, hits fill ${percent(ours.tail_shares.short)} of its lists and ${percent(other.tail_shares.short)} of those by ${other.label}.`;
}

// folded: where there is little room, what is said about all tastes is behind "Why?".
export function foldStory(folded) {
  byId("story-why").open = !folded;
}

export function showStory(state, chosen, entries) {
  const ours = chosen.find((model) => model.loss === "mil");
  const example = isExample(state);
  const pair = example ? told.models.map((name) => entries.find((entry) => entry.model.name === name)) : [];
  const places = Math.min(SEEN, ...pair.map((entry) => entry?.answer.items.length ?? 0));
  const compared = pair.length === 2 && places > 1 && !state.rules.length && !pair.some((entry) => isTurned(state, entry.model));
  byId("story").classList.toggle("quiet", !example);
  byId("story-title").textContent = ours ? "Not seen is not the same as not liked." : "What would each model recommend?";
  byId("story-lead").textContent = ours
    ? `Missing-information loss treats what somebody has not tried as unknown, not as disliked.${onAverage(ours, chosen)}`
    : "Pick a few titles and compare the lists.";
  if (compared && places === SEEN) byId("story-lead").append(" This is not an extreme example: at least a fifth of the tastes we tried differ as much.");
  if (example && moreRule(state.rules)) byId("story-lead").append(" The button sets a rule for each list; the slider would set an average over all users, which a single list can be far from.");
  byId("story-said").textContent = example ? sentence(state, compared && difference(pair, places)) : "";
  byId("story-try").hidden = !entries.length;
  byId("story-try").textContent = moreRule(state.rules) ? "Back to the models’ own lists" : "Ask for more of the long tail";
  byId("story-again").hidden = told === null || example;
}

// difference: what sets the two lists apart; false where they are not the models' own.
function sentence(state, difference) {
  const more = moreRule(state.rules);
  if (more) return `Now a rule gives the long tail at least ${more.amount} % of each list; each model fills these places with what it thinks fits best. Compare what they find.`;
  return difference ? `In this example, someone likes ${joined(told.titles)}.${difference}` : `An example from this catalogue: someone who likes ${joined(told.titles)}.`;
}

function difference([one, other], places) {
  const [first, second] = [one, other].map((entry) => counted(entry, "short"));
  const then = second < first - 2 ? `fills ${second === 0 ? "none" : `only ${second}`} and finds lesser-known titles for the rest` : `fills ${second}`;
  return ` ${one.model.label} fills ${first === places ? "all" : first} of the ${places < SEEN ? "" : "first "}${places} places with hits; ${other.model.label} ${then}.`;
}

const counted = (entry, tail) => entry.answer.items.slice(0, SEEN).filter((item) => item.tail === tail).length;
