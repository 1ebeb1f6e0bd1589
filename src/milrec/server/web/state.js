// What the page shows, and its form in the address: a link brings all of it back.
// It stands behind the #, which browsers keep to themselves: tastes and users do not get into logs on the way.

import { TAIL_NAMES } from "./names.js";

export const DEFAULT_LENGTH = 20;
export const LONGEST = 100;
export const MOST_MODELS = 4;
const MOST_RULES = 20;
const MOST_ITEMS = 1e9; // as the server counts them in rules
const RULE = /^(short|medium|long)\s*(>=|<=)\s*(\d+(?:\.\d{1,6})?)\s*(%?)(?:\s+in\s+(\d+))?$/;

export const emptyState = () => ({
  models: [], who: "taste", user: null, liked: [], disliked: [], long: null, dial: 0, n: DEFAULT_LENGTH, rules: [],
  item: null, by: null,
}); // long: the share of the long tail, null where the dial is off; dial: the old one, which links alone can bring
// item: whose page is open, if any; by: the model it is seen with, null for the first

// The state in a fragment, and a sentence for each part that could not be taken from it.
export function readState(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const state = emptyState();
  const notes = [];
  state.models = [...new Set(given.getAll("model"))];
  state.user = given.get("user") || null;
  state.liked = [...new Set(given.getAll("liked"))];
  state.disliked = [...new Set(given.getAll("disliked"))].filter((item) => !state.liked.includes(item));
  state.who = state.user !== null && state.liked.length + state.disliked.length === 0 ? "user" : "taste";
  if ((given.get("who") ?? given.get("whom")) === "user") state.who = "user";
  if (given.has("long")) {
    const long = numberIn(given.get("long"));
    if (isShare(long)) state.long = long;
    else notes.push(`The link asks for a long-tail share of '${given.get("long")}', which is not a number from 0 to 1; the slider is off.`);
  }
  if (given.has("dial")) {
    const dial = numberIn(given.get("dial"));
    if (!Number.isFinite(dial)) notes.push(`The link sets the old dial to '${given.get("dial")}', which is not a number; it is off.`);
    else if (dial && state.long !== null) notes.push("The link has a long-tail share and the old dial; the long-tail share is used.");
    else state.dial = dial;
  }
  if (given.has("n")) {
    const n = Number(given.get("n"));
    if (isLength(n)) state.n = n;
    else notes.push(`The link asks for '${given.get("n")}' items; a list here has 1 to ${LONGEST}, so ${state.n} are shown.`);
  }
  for (const text of given.getAll("rule")) {
    const rule = parseRule(text);
    const wrong = rule && whyNot(rule, state.rules);
    if (!rule) notes.push(`The link has a rule '${text}' that cannot be read; rules look like 'long >= 30%' or 'short <= 2 in 10'.`);
    else if (wrong) notes.push(`The link has a rule '${text}' that is left out. ${wrong}`);
    else state.rules.push(rule);
  }
  state.item = given.get("item") || null;
  state.by = given.get("by") || null;
  return { state, notes };
}

export function writeState(state) {
  const out = new URLSearchParams();
  for (const model of state.models) out.append("model", model);
  if (state.who === "user") {
    out.append(state.user === null ? "who" : "user", state.user ?? "user");
  } else {
    for (const item of state.liked) out.append("liked", item);
    for (const item of state.disliked) out.append("disliked", item);
  }
  if (state.long !== null) out.append("long", state.long);
  if (state.dial !== 0) out.append("dial", state.dial);
  if (state.n !== DEFAULT_LENGTH) out.append("n", state.n);
  for (const rule of state.rules) out.append("rule", ruleText(rule));
  if (state.item !== null) out.append("item", state.item);
  if (state.item !== null && state.by !== null) out.append("by", state.by);
  return out.toString();
}

const numberIn = (text) => (text.trim() === "" ? NaN : Number(text));

export const isShare = (share) => share >= 0 && share <= 1;

export const isLength = (n) => Number.isInteger(n) && n >= 1 && n <= LONGEST;

export function parseRule(text) {
  const found = RULE.exec(text.trim());
  if (!found) return null;
  const [, tail, sign, amount, unit, first] = found;
  if (unit === "%" ? Number(amount) > 100 : !isCount(amount)) return null;
  if (first && (!isCount(first) || Number(first) === 0)) return null;
  return { tail, sign, amount: Number(amount), unit, first: first ? Number(first) : null };
}

const isCount = (text) => Number.isInteger(Number(text)) && Number(text) <= MOST_ITEMS;

// Why a rule cannot stand beside others, in a sentence; null where it can.
export function whyNot(rule, others) {
  const { sign, amount, unit, first } = rule;
  if (sign === ">=" && !unit && first && amount > first) return `The first ${first} cannot hold ${amount} items.`;
  if (others.some((one) => ruleText(one) === ruleText(rule))) return "This rule is there already.";
  if (others.length >= MOST_RULES) return `A list can have ${MOST_RULES} rules at most.`;
  return null;
}

const ruleText = (rule) =>
  `${rule.tail} ${rule.sign} ${rule.amount}${rule.unit}${rule.first ? ` in ${rule.first}` : ""}`;

export function ruleSentence(rule) {
  const amount = rule.unit ? `${rule.amount} %` : rule.amount;
  const part = rule.first ? `the first ${rule.first}` : "the list";
  return `${rule.sign === ">=" ? "at least" : "at most"} ${amount} of ${part} from the ${TAIL_NAMES[rule.tail]}`;
}

// A model without probabilities makes its lists without the dial.
export const canAim = (model) => model.tail_shares !== null;

// Whether the dial, or the old one, is at work in a model's list.
export const isTurned = (state, model) => state.dial !== 0 || (state.long !== null && canAim(model));

// The state as the body of a request for one model.
export function requestOf(state, model) {
  const who = state.who === "user" ? { user: state.user } : { adopted: state.liked, rejected: state.disliked };
  const rules = state.rules.map((rule) => ({
    tail: rule.tail,
    [rule.sign === ">=" ? "at_least" : "at_most"]: rule.unit ? `${rule.amount}%` : rule.amount,
    ...(rule.first ? { first: rule.first } : {}),
  }));
  const dial = state.dial !== 0 ? { dial: state.dial } : isTurned(state, model) ? { long_share: state.long } : {};
  return { model: model.name, ...who, n: state.n, ...dial, rules, reasons: 2 };
}

// What a model's list is compared with: the same with the slider off or, where it is off, without the rules. Null: nothing.
export const comparedBy = (state, model) => (isTurned(state, model) ? "slider" : state.rules.length ? "rules" : null);

// That other list; its reasons, which can be slow to find, are not shown.
export function otherRequest(state, model) {
  const other = comparedBy(state, model) === "slider" ? { ...state, long: null, dial: 0 } : { ...state, rules: [] };
  return { ...requestOf(other, model), reasons: 0 };
}

// Whether there is anybody yet to make a list for.
export const namesSomebody = (state) =>
  state.who === "user" ? state.user !== null : state.liked.length + state.disliked.length > 0;
