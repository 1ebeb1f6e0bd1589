// The explorer: controls → state → address and lists. The address always says what is shown.

import * as api from "./api.js";
import { combobox } from "./combobox.js";
import { light, popularityFigure } from "./curve.js";
import { listenToDial, showDial, showDialNumber } from "./dial.js";
import { byId, count, hits, later, make, percent } from "./dom.js";
import { itemOf, keepItem, learnCurve, learnItems } from "./learnt.js";
import { column, nameOf, showColumns } from "./results.js";
import { LONGEST, MOST_MODELS, canAim, emptyState, isLength, isTurned, namesSomebody, parseRule, readState, requestOf, ruleSentence, unturnedRequest, whyNot, writeState } from "./state.js";

const OLD_DIAL = "This link uses the old popularity dial, which is deprecated: it moves each model by a different amount. Use the long-tail share instead, which means the same for all.";
const COLOURS = { mil: "mil", pointwise: "ce", multinomial: "multi" };

let state = emptyState();
let models = []; // what the server has, each with its colour
let curve = null; // of the first chosen model
let shown = []; // the entries on the page
let asking = null; // the request under way

// ---- sentences ----

function say(kind, sentence, ...more) {
  byId("notes").append(make("p", { class: `box ${kind}` }, sentence, ...more));
}

function fail(error) {
  byId("lists").setAttribute("aria-busy", "false");
  if (error.name === "AbortError") return;
  byId("notes").replaceChildren();
  if (error instanceof api.KeyNeeded) return askForKey(error);
  byId("results").classList.toggle("stale", shown.length > 0);
  const older = shown.length > 0 && " The lists below are from before.";
  say("bad", error.message, older, " ", make("button", { type: "button", class: "plain", onclick: start }, "Try again"));
}

function askForKey(error) {
  if (api.hasKey()) say("bad", error.message);
  byId("app").hidden = true;
  byId("key-form").hidden = false;
  byId("key").focus();
}

function takeKey(event) {
  event.preventDefault();
  const key = byId("key").value.trim();
  const foreign = api.foreignSign(key);
  byId("notes").replaceChildren();
  if (foreign) return say("bad", `A key holds plain letters, digits and signs only; '${foreign}' is none of them.`);
  api.keepKey(key);
  start();
}

// ---- models ----

const sameModels = (some, others) => some.length === others.length && some.every((one, at) => one.name === others[at].name && one.fitted.fingerprint === others[at].fitted.fingerprint);
const chosen = () => state.models.map((name) => models.find((model) => model.name === name));

function withColours(known) {
  const taken = new Set();
  return known.map((model, at) => {
    const own = COLOURS[model.loss];
    const colour = own && !taken.has(own) ? own : `series-${at % 12}`;
    taken.add(colour);
    return { ...model, colour };
  });
}

// Models of the address that the server has; without any, the first few.
function chooseModels() {
  const known = models.map((model) => model.name);
  const foreign = state.models.filter((name) => !known.includes(name));
  for (const name of foreign) say("warn", `This server has no model '${name}'; it has: ${known.join(", ")}.`);
  const wanted = state.models.filter((name) => known.includes(name));
  if (wanted.length > MOST_MODELS) say("warn", `At most ${MOST_MODELS} models stand side by side; the first ${MOST_MODELS} of the link are shown.`);
  state.models = (wanted.length ? wanted : known.slice(0, 3)).slice(0, MOST_MODELS);
}

function showModels() {
  const full = state.models.length >= MOST_MODELS;
  const box = (model) => {
    const on = state.models.includes(model.name);
    const alone = on && state.models.length === 1;
    const input = make("input", { type: "checkbox", value: model.name, checked: on, disabled: alone || (full && !on), onchange: () => {
      state.models = on ? state.models.filter((name) => name !== model.name) : models.map((one) => one.name).filter((name) => name === model.name || state.models.includes(name));
      update();
    } });
    return make("label", { class: "model" }, input, make("span", {}, make("span", { class: `swatch ${model.colour}` }), model.name));
  };
  const focused = document.activeElement?.closest("#models") && document.activeElement.value;
  byId("models").replaceChildren(make("legend", {}, `Models to compare${models.length > MOST_MODELS ? ` (up to ${MOST_MODELS})` : ""}`), ...models.map(box));
  if (focused) [...byId("models").querySelectorAll("input")].find((input) => input.value === focused)?.focus();
  const { n_users, n_items, n_interactions } = chosen()[0];
  byId("catalogue").textContent = `${count(n_items)} items, ${count(n_users)} users, ${count(n_interactions)} adoptions`;
}

// ---- who for ----

function asOption(model, item) {
  keepItem(model, item);
  return { value: item.item, label: nameOf(item), detail: `${item.tail} tail, ${count(item.popularity)} adopters`, tail: item.tail };
}

async function searchItems(text, signal) {
  const [model] = chosen();
  return (await api.findItems(model.name, text, signal)).items.map((item) => asOption(model, item));
}

async function searchUsers(text, signal) {
  return (await api.findUsers(state.models[0], text, signal)).users.map((user) => ({ value: user, label: user }));
}

function add(kind, option) {
  const other = kind === "liked" ? "disliked" : "liked";
  state[other] = state[other].filter((item) => item !== option.value);
  if (!state[kind].includes(option.value)) state[kind] = [...state[kind], option.value];
  update();
}

function chips(kind) {
  const rows = state[kind].map((id) => {
    const item = itemOf(chosen()[0], id);
    const drop = () => {
      state[kind] = state[kind].filter((one) => one !== id);
      update();
      (byId(`${kind}-chips`).querySelector("button") ?? byId(kind)).focus();
    };
    return make("li", { class: "chip" }, item && make("span", { class: `dot ${item.tail}` }), make("span", {}, item ? nameOf(item) : id),
      make("button", { type: "button", "aria-label": `Remove ${item ? nameOf(item) : id}`, onclick: drop }, "×"));
  });
  byId(`${kind}-chips`).replaceChildren(...rows);
}

// The titles of items that came with the address; an unknown one keeps its id, and the lists say what is wrong with it.
async function nameTaste(signal) {
  if (await learnItems(chosen()[0], [...state.liked, ...state.disliked], signal)) showTaste();
}

function showTaste() {
  chips("liked");
  chips("disliked");
  byId("clear").hidden = !state.liked.length && !state.disliked.length;
}

function showWhom() {
  for (const radio of document.querySelectorAll("input[name=who]")) radio.checked = radio.value === state.who;
  byId("taste-part").hidden = state.who !== "taste";
  byId("user-part").hidden = state.who !== "user";
  showTaste();
}

async function showUser(signal) {
  const place = byId("user-items");
  if (state.who !== "user" || state.user === null) return place.replaceChildren();
  const name = make("p", {}, "Lists for user ", make("b", {}, state.user));
  try {
    const { adopted, rejected } = await api.oneUser(state.models[0], state.user, signal);
    const part = (title, rows) => rows.length > 0 && make("details", {}, make("summary", {}, `${title} ${count(rows.length)} ${rows.length === 1 ? "item" : "items"}`),
      make("ul", { class: "had" }, rows.map((item) => make("li", {}, make("span", { class: `dot ${item.tail}` }), nameOf(item)))));
    place.replaceChildren(name, ...[part("Adopted", adopted), part("Rejected", rejected)].filter(Boolean));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    place.replaceChildren(); // what is wrong stands where the lists would be
  }
}

// ---- dial, length, rules ----

// The number fields as the state has them; one that is being typed in keeps its text.
function showNumbers(typing = document.activeElement) {
  showDialNumber(state, typing);
  if (typing === byId("n")) return;
  byId("n").value = state.n;
  judgeLength(state.n);
}

function showControls() {
  showNumbers();
  showDial(state, chosen());
  if (state.rules.length) byId("rules-part").open = true;
  byId("rules").replaceChildren(...state.rules.map((rule) => make("li", { class: "chip" }, make("span", {}, ruleSentence(rule)),
    make("button", { type: "button", "aria-label": `Remove the rule: ${ruleSentence(rule)}`, onclick: () => {
      state.rules = state.rules.filter((one) => one !== rule);
      update();
      byId("rule-kind").focus();
    } }, "×"))));
}

function addRule(event) {
  event.preventDefault();
  const [kind, amount, unit, first, tail] = ["kind", "amount", "unit", "first", "tail"].map((name) => byId(`rule-${name}`).value);
  const rule = parseRule(`${tail} ${kind} ${amount}${unit}${first ? ` in ${first}` : ""}`);
  const wrong = rule ? whyNot(rule, state.rules) : "A rule needs a whole number, or 0 to 100 %.";
  byId("rule-said").textContent = wrong ?? "";
  if (wrong) return;
  state.rules = [...state.rules, rule];
  update();
}

function changeShare(share) {
  state.long = share;
  state.dial = 0; // the old one makes way
  byId("notes").querySelector(".old-dial")?.remove();
  showControls();
  updateSoon();
}

function judgeLength(n) {
  byId("n-said").textContent = isLength(n) ? "" : `A list here has 1 to ${LONGEST} items.`;
  byId("n").setAttribute("aria-invalid", !isLength(n));
  return isLength(n);
}

function changeLength(text) {
  const n = Number(text);
  if (!judgeLength(n)) return;
  state.n = n;
  updateSoon();
}

// ---- lists ----

// Everything drawn again from the state: address, controls, lists.
async function update() {
  history.replaceState(null, "", `#${writeState(state)}`);
  showModels();
  showWhom();
  showControls();
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  byId("lists").setAttribute("aria-busy", "true");
  try {
    const [answers, ownCurve, known] = await Promise.all([
      fetchLists(signal), learnCurve(chosen()[0], signal), api.allModels(signal), nameTaste(signal), showUser(signal),
    ]);
    if (signal.aborted) return;
    if (!sameModels(models, known.models)) return await take(known.models); // a model was reloaded
    curve = ownCurve;
    byId("notes").querySelectorAll(".bad").forEach((box) => box.remove());
    byId("results").classList.remove("stale");
    if (answers) showLists(answers);
    else await showInvitation();
    byId("lists").setAttribute("aria-busy", "false");
  } catch (error) {
    if (!signal.aborted) fail(error);
  }
}

const updateLater = later(90, update);

function updateSoon() {
  asking?.abort(); // what it asks for is no longer wanted
  byId("lists").setAttribute("aria-busy", "true");
  updateLater();
}

async function fetchLists(signal) {
  if (!namesSomebody(state)) return null;
  const own = chosen();
  const turned = own.filter((model) => isTurned(state, model));
  const requests = [...own.map((model) => requestOf(state, model)), ...turned.map((model) => unturnedRequest(state, model))];
  return api.recommend(requests, signal);
}

function showLists(answers) {
  const turned = chosen().filter((model) => isTurned(state, model));
  const entries = chosen().map((model, place) => {
    const without = turned.includes(model) ? answers[state.models.length + turned.indexOf(model)] : null;
    const unable = state.long !== null && !canAim(model);
    return { model, place, colour: model.colour, answer: answers[place], without: without?.error ? null : without, unable };
  });
  const errors = new Set(entries.map((entry) => entry.answer.error));
  shown = entries.filter((entry) => !entry.answer.error);
  byId("results").classList.toggle("empty", !shown.length);
  if (errors.size === 1 && !shown.length) { // the same mistake everywhere is said once
    showColumns(byId("lists"), [make("p", { class: "box bad", role: "alert" }, [...errors][0])]);
  } else {
    showColumns(byId("lists"), entries.map((entry) => column(entry, shown.filter((other) => other !== entry), curve.popularity[0])));
  }
  drawCurve();
  byId("chance-said").hidden = shown.every((entry) => entry.answer.expected_hits === null);
  byId("said").textContent = shown.map((entry) => `${entry.model.name}: ${spoken(entry.answer)}`).join("; ");
}

function spoken(answer) {
  const share = `${percent(answer.shares.long ?? 0)} from the long tail`;
  return answer.expected_hits === null ? share : `${share}, ${hits(answer.expected_hits)} expected hits`;
}

function drawCurve() {
  const place = byId("curve");
  const hadFocus = place.contains(document.activeElement) && document.activeElement.dataset.item;
  place.replaceChildren(...popularityFigure(curve, shown, Math.max(280, place.clientWidth)));
  const again = hadFocus && place.querySelector(`[data-item="${CSS.escape(hadFocus)}"]`);
  if (again) again.focus();
}

// Nobody is named yet: a few users and titles to begin with.
async function showInvitation() {
  shown = [];
  drawCurve();
  byId("chance-said").hidden = true;
  byId("said").textContent = "";
  const [model] = chosen();
  const nobody = { model: model.name, adopted: [], n: 6 };
  const [users, [liked]] = await Promise.all([api.findUsers(model.name, "").catch(() => ({ users: [] })), api.recommend([nobody]).catch(() => [{}])]);
  if (namesSomebody(state)) return;
  byId("results").classList.add("empty"); // the invitation above the curve
  const titles = (liked.items ?? []).map((item) => make("li", {}, make("button", { type: "button", class: "chip", onclick: () => {
    state.who = "taste";
    add("liked", asOption(model, item));
  } }, make("span", { class: `dot ${item.tail}` }), nameOf(item))));
  const people = users.users.slice(0, 6).map((user) => make("li", {}, make("button", { type: "button", class: "chip", onclick: () => chooseUser(user) }, user)));
  showColumns(byId("lists"), [make("section", { class: "card invitation", "aria-labelledby": "invitation" },
    make("h2", { id: "invitation" }, "Say who the list is for, and see what each model would show"),
    make("p", { class: "soft" }, "Search for a title that somebody likes, or take one of these:"),
    make("ul", { class: "chips" }, titles),
    people.length > 0 && make("p", { class: "soft" }, "Or look at the lists of a known user:"), people.length > 0 && make("ul", { class: "chips" }, people))]);
}

function chooseUser(user) {
  state.who = "user";
  state.user = user;
  update();
}

// ---- start ----

async function copyLink() {
  const link = location.href;
  byId("link").value = link;
  try {
    await navigator.clipboard.writeText(link);
    byId("copied").textContent = "Copied.";
  } catch { // no clipboard outside https and this machine: the link to copy by hand
    byId("link-field").hidden = false;
    byId("link").select();
    byId("copied").textContent = "Copy it from here:";
  }
}

function listen() {
  combobox({ field: byId("liked-field"), id: "liked", placeholder: "Search titles that are liked", find: searchItems, choose: (option) => add("liked", option) });
  combobox({ field: byId("disliked-field"), id: "disliked", placeholder: "Search titles that are disliked", find: searchItems, choose: (option) => add("disliked", option) });
  combobox({ field: byId("user-field"), id: "user", placeholder: "Search users by id", find: searchUsers, choose: (option) => chooseUser(option.value), free: true });
  for (const radio of document.querySelectorAll("input[name=who]")) {
    radio.addEventListener("change", () => {
      state.who = radio.value;
      update();
    });
  }
  byId("clear").addEventListener("click", () => {
    state.liked = state.disliked = [];
    update();
    byId("liked").focus();
  });
  listenToDial(changeShare, () => showDialNumber(state, null));
  byId("n").addEventListener("input", () => changeLength(byId("n").value));
  byId("rule-form").addEventListener("submit", addRule);
  byId("copy").addEventListener("click", copyLink);
  byId("key-form").addEventListener("submit", takeKey);
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part behind the # is the state
    byId("lists").focus();
  });
  for (const [name, on] of [["pointerover", true], ["pointerout", false]]) {
    byId("lists").addEventListener(name, (event) => {
      const item = event.target.closest?.(".item");
      if (item) light(item.dataset.item, on);
    });
  }
  addEventListener("hashchange", () => (models.length ? open() : start()));
  addEventListener("resize", later(150, () => curve && !byId("app").hidden && drawCurve()));
}

// What the address says, on the page.
function open() {
  const { state: given, notes } = readState(location.hash);
  byId("notes").replaceChildren();
  for (const sentence of notes) say("warn", sentence);
  if (given.dial !== 0) say("warn old-dial", OLD_DIAL);
  state = given;
  chooseModels();
  showNumbers(null);
  return update();
}

function take(known) {
  models = withColours(known);
  return open();
}

async function start() {
  let known;
  try {
    known = (await api.allModels()).models;
  } catch (error) {
    return fail(error);
  }
  byId("key-form").hidden = true;
  byId("app").hidden = false;
  return take(known);
}

listen();
start();
