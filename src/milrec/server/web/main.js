// The explorer: controls → state → address and lists. The address always says what is shown.

import * as api from "./api.js";
import { combobox } from "./combobox.js";
import { download, itemCsv, listsCsv } from "./csv.js";
import { light, popularityFigure } from "./curve.js";
import { listenToDial, showDial, showDialNumber } from "./dial.js";
import { byId, count, hits, later, make, percent } from "./dom.js";
import { drawPlace, itemShown, itemTables, showItem, showItemRanks } from "./item.js";
import { itemOf, keepItem, learnCurve, learnItems } from "./learnt.js";
import { chooseModels, dressed, sameModels, showCatalogue, showModels } from "./models.js";
import { TAIL_NAME, nameOf } from "./names.js";
import { column, showColumns } from "./results.js";
import { LONGEST, canAim, comparedBy, emptyState, isLength, namesSomebody, otherRequest, parseRule, readState, requestOf, ruleSentence, whyNot, writeState } from "./state.js";
import { foldStory, learnStory, learnStorySoon, moreRule, showStory, triedRules, withoutMore } from "./story.js";
import { listenToViews } from "./views.js";

const OLD_DIAL = "This link uses the old popularity dial, which is deprecated: it moves each model by a different amount. Use the long-tail share instead, which means the same for all of them.";
const NARROW = "(max-width: 1000px)";

let state = emptyState();
let models = []; // what the server has, each with its colour
let curve = null; // of the first chosen model
let shown = []; // the entries on the page
let asking = null; // the request under way
let opening = 0; // how often an address was opened; an older one makes way
let listsAt = 0; // how far down the lists were when an item's page was opened

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
  const older = shown.length > 0 && " The lists below are from before that.";
  say("bad", error.message, older, " ", make("button", { type: "button", class: "plain", onclick: start }, "Try again"));
}

function askForKey(error) {
  if (api.hasKey()) say("bad", error.message);
  byId("app").hidden = byId("tools").hidden = true;
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

const chosen = () => state.models.map((name) => models.find((model) => model.name === name));

// ---- who for ----

function asOption(model, item) {
  keepItem(model, item);
  return { value: item.item, label: nameOf(item), detail: `${TAIL_NAME[item.tail]}, ${count(item.popularity)} adopters`, tail: item.tail };
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

// The address of an item's page, with all else as it is.
const addressOf = (item) => `#${writeState({ ...state, item, by: null })}`;
const itemLink = (item) => make("a", { href: addressOf(item.item), "data-link": item.item }, nameOf(item));

function chips(kind) {
  const rows = state[kind].map((id) => {
    const item = itemOf(chosen()[0], id);
    const drop = () => {
      state[kind] = state[kind].filter((one) => one !== id);
      update();
      (byId(`${kind}-chips`).querySelector("button") ?? byId(kind)).focus();
    };
    return make("li", { class: "chip" }, item && make("span", { class: `dot ${item.tail}` }), make("span", {}, item ? itemLink(item) : id),
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
  byId("who-said").textContent = whoInWords();
}

function whoInWords() {
  if (state.who === "user") return state.user === null ? "a known user" : `user ${state.user}`;
  const parts = [state.liked.length && `${state.liked.length} liked`, state.disliked.length && `${state.disliked.length} disliked`];
  return parts.filter(Boolean).join(", ") || "nobody yet";
}

function showWho() {
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
      make("ul", { class: "had" }, rows.map((item) => make("li", {}, make("span", { class: `dot ${item.tail}` }), itemLink(item)))));
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
  byId("rules").replaceChildren(...state.rules.map((rule) => make("li", { class: "chip" }, ...removable(rule, "rule-kind"))));
  const more = moreRule(state.rules); // also says something about the long tail: it stands beside the slider, too
  byId("dial-rule").replaceChildren(...(more ? [make("p", { class: "chip" }, ...removable(more, "dial", `Rule: at least ${more.amount} % of each list`))] : []));
}

// What is said of a rule, and the button that removes it; next: what then gets the focus.
function removable(rule, next, said = ruleSentence(rule)) {
  const drop = () => {
    state.rules = state.rules.filter((one) => one !== rule);
    update();
    byId(next).focus();
  };
  return [make("span", {}, said), make("button", { type: "button", "aria-label": `Remove the rule: ${ruleSentence(rule)}`, onclick: drop }, "×")];
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
  showAround();
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  byId("lists").setAttribute("aria-busy", "true");
  try {
    const [answers, ownCurve, known] = await Promise.all([
      fetchLists(signal), learnCurve(chosen()[0], signal), api.allModels(signal), nameTaste(signal), showUser(signal), showItemPage(signal),
    ]);
    if (signal.aborted) return;
    if (!sameModels(models, known.models)) return await take(known.models); // a model was reloaded
    curve = ownCurve;
    byId("notes").querySelectorAll(".bad").forEach((box) => box.remove());
    byId("results").classList.remove("stale");
    if (answers) showLists(answers);
    else await showInvitation(signal);
    if (signal.aborted) return;
    showStory(state, chosen(), shown);
    showItemRanks(shown);
    allowDownload();
    byId("lists").setAttribute("aria-busy", "false");
  } catch (error) {
    if (!signal.aborted) fail(error);
  }
}

// All that needs no answer from the server.
function showAround() {
  showModels(state.models, models, (names) => {
    state.models = names;
    update();
  });
  showCatalogue(chosen()[0]);
  showWho();
  showControls();
  showView();
}

function allowDownload() {
  byId("csv").disabled = state.item === null ? !shown.length : !itemTables();
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
  const compared = own.filter((model) => comparedBy(state, model));
  const requests = [...own.map((model) => requestOf(state, model)), ...compared.map((model) => otherRequest(state, model))];
  return api.recommend(requests, signal);
}

function showLists(answers) {
  const compared = chosen().filter((model) => comparedBy(state, model));
  const entries = chosen().map((model, place) => {
    const without = compared.includes(model) ? answers[state.models.length + compared.indexOf(model)] : null;
    const unable = state.long !== null && !canAim(model);
    return { model, place, colour: model.colour, answer: answers[place], without: without?.error ? null : without, by: comparedBy(state, model), unable };
  });
  const errors = new Set(entries.map((entry) => entry.answer.error));
  shown = entries.filter((entry) => !entry.answer.error);
  byId("results").classList.toggle("empty", !shown.length);
  if (errors.size === 1 && !shown.length) { // the same mistake everywhere is said once
    showColumns(byId("lists"), [make("p", { class: "box bad", role: "alert" }, [...errors][0])]);
  } else {
    showColumns(byId("lists"), entries.map((entry) => column(entry, shown.filter((other) => other !== entry), curve.popularity[0], addressOf)));
  }
  drawCurve();
  byId("chance-said").hidden = shown.every((entry) => entry.answer.expected_hits === null);
  byId("chance-rough").hidden = state.who === "user" || state.liked.length >= 10;
  byId("chance-hint").hidden = byId("chance-said").hidden || byId("chance-rough").hidden || shown.length < 2;
  byId("said").textContent = shown.map((entry) => `${entry.model.label}: ${spoken(entry.answer)}`).join("; ");
}

function spoken(answer) {
  const share = `${percent(answer.shares.long ?? 0)} from the long tail`;
  return answer.expected_hits === null ? share : `${share}, ${hits(answer.expected_hits)} expected to be adopted`;
}

// ---- one item ----

// The lists, or the page of an item; on the way back the lists are where they were left.
function showView() {
  const wasItem = !byId("item-view").hidden;
  const isItem = state.item !== null;
  if (isItem && !wasItem) listsAt = scrollY;
  byId("lists-view").hidden = isItem;
  byId("item-view").hidden = !isItem;
  byId("skip").hidden = isItem;
  if (!isItem) document.title = "milrec explorer";
  if (!wasItem || isItem) return;
  if (curve) drawCurve();
  const left = itemShown()?.item.item;
  scrollTo(0, listsAt);
  left !== undefined && byId("lists").querySelector(`[data-link="${CSS.escape(left)}"]`)?.focus({ preventScroll: true });
}

// Where an item is in the taste, if it is.
function heldAs(item) {
  if (state.who === "user") return null;
  return ["liked", "disliked"].find((kind) => state[kind].includes(item)) ?? null;
}

async function showItemPage(signal) {
  if (state.item === null) return;
  const own = chosen();
  const model = own.find((one) => one.name === state.by) ?? own.find((one) => one.loss === "mil") ?? own[0];
  const fresh = itemShown()?.item.item !== state.item || byId("item-view").hidden || !byId("item-title");
  const hadFocus = document.activeElement?.name === "by";
  const opinion = (kind) => (item) => {
    keepItem(model, item);
    const other = kind === "liked" ? "disliked" : "liked";
    const without = { ...state, who: "taste", item: null, by: null, [other]: state[other].filter((one) => one !== item.item) };
    location.hash = writeState({ ...without, [kind]: [...new Set([...without[kind], item.item])] });
  };
  const forget = (kind) => (item) => {
    state[kind] = state[kind].filter((one) => one !== item.item);
    update();
  };
  await showItem(state.item, model, own, {
    forgetLiked: forget("liked"), forgetDisliked: forget("disliked"), held: heldAs(state.item), back: `#${writeState({ ...state, item: null })}`, link: addressOf, like: opinion("liked"), dislike: opinion("disliked"),
    by: (one) => {
      state.by = one.name;
      update();
    },
    filled: allowDownload, fail,
  }, signal);
  if (signal.aborted) return;
  document.title = `${byId("item-title").textContent} · milrec explorer`;
  if (hadFocus) byId("item-view").querySelector("input[name=by]:checked")?.focus();
  else if (fresh || !byId("item-view").contains(document.activeElement)) {
    scrollTo(0, 0);
    byId("item-title").focus({ preventScroll: true });
  }
}

function downloadShown() {
  const one = state.item !== null && itemShown();
  if (one) download("milrec-item.csv", itemCsv(one.item.item, one.model.label, itemTables()));
  else download("milrec-lists.csv", listsCsv(shown));
}

function drawCurve() {
  const place = byId("curve");
  const hadFocus = place.contains(document.activeElement) && document.activeElement.dataset.item;
  place.replaceChildren(...popularityFigure(curve, shown, Math.max(280, place.clientWidth)));
  const again = hadFocus && place.querySelector(`[data-item="${CSS.escape(hadFocus)}"]`);
  if (again) again.focus();
}

// Nobody is named yet: a few users and titles to begin with.
async function showInvitation(signal) {
  shown = [];
  drawCurve();
  byId("chance-said").hidden = byId("chance-hint").hidden = true;
  byId("said").textContent = "";
  const [model] = chosen();
  const nobody = { model: model.name, adopted: [], n: 6 };
  const [users, [liked]] = await Promise.all([api.findUsers(model.name, "").catch(() => ({ users: [] })), api.recommend([nobody]).catch(() => [{}])]);
  if (signal.aborted) return;
  byId("results").classList.add("empty");
  const titles = (liked.items ?? []).map((item) => make("li", {}, make("button", { type: "button", class: "chip", onclick: () => {
    state.who = "taste";
    add("liked", asOption(model, item));
  } }, make("span", { class: `dot ${item.tail}` }), nameOf(item))));
  const people = users.users.slice(0, 6).map((user) => make("li", {}, make("button", { type: "button", class: "chip", onclick: () => chooseUser(user) }, user)));
  showColumns(byId("lists"), [make("section", { class: "card invitation", "aria-labelledby": "invitation" },
    make("h2", { id: "invitation" }, "Who is this list for?"),
    make("p", { class: "soft" }, "Search for something that they like, or start with one of these:"),
    make("ul", { class: "chips" }, titles),
    people.length > 0 && make("p", { class: "soft" }, "Or look at the lists for a known user:"), people.length > 0 && make("ul", { class: "chips" }, people))]);
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
  combobox({ field: byId("liked-field"), id: "liked", placeholder: "Search for a title they like", find: searchItems, choose: (option) => add("liked", option) });
  combobox({ field: byId("disliked-field"), id: "disliked", placeholder: "Search for a title they dislike", find: searchItems, choose: (option) => add("disliked", option) });
  combobox({ field: byId("user-field"), id: "user", placeholder: "Search for a user by id", find: searchUsers, choose: (option) => chooseUser(option.value), free: true });
  for (const radio of document.querySelectorAll("input[name=who]")) {
    radio.addEventListener("change", () => {
      state.who = radio.value;
      update();
    });
  }
  byId("clear").addEventListener("click", () => {
    state.liked = state.disliked = [];
    state.rules = withoutMore(state.rules);
    update();
    byId("liked").focus();
  });
  listenToDial(changeShare, () => showDialNumber(state, null));
  listenToViews(() => writeState(state));
  byId("story-try").addEventListener("click", () => {
    state.rules = triedRules(state.rules, shown);
    update();
  });
  byId("csv").addEventListener("click", downloadShown);
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
  document.addEventListener("click", (event) => { // the links were made with the lists; the state may have moved on
    const link = event.target.closest?.("a[data-link]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    location.hash = addressOf(link.dataset.link);
  });
  matchMedia(NARROW).addEventListener("change", ({ matches }) => foldStory(matches));
  addEventListener("hashchange", () => (models.length ? open() : start()));
  addEventListener("resize", later(150, () => {
    if (!curve || byId("app").hidden) return;
    if (state.item === null) drawCurve();
    else drawPlace();
  }));
}

// What the address says, on the page; where it names nobody, the example.
async function open() {
  const { state: given, notes } = readState(location.hash);
  const own = ++opening;
  asking?.abort();
  byId("notes").replaceChildren();
  for (const sentence of notes) say("warn", sentence);
  if (given.dial !== 0) say("warn old-dial", OLD_DIAL);
  byId("lists").setAttribute("aria-busy", "true");
  const named = given.models.length > 0;
  state = given;
  state.models = chooseModels(given.models, models, (sentence) => say("warn", sentence));
  learnStory(models).then(() => own === opening && showStory(state, chosen(), shown), () => {});
  if (!namesSomebody(given) && given.who !== "user" && given.item === null) {
    showAround();
    try {
      if (!await takeStory(own, named)) return;
    } catch (error) {
      return fail(error);
    }
  }
  byId("who-part").open = !matchMedia(NARROW).matches || (!namesSomebody(state) && state.item === null);
  foldStory(matchMedia(NARROW).matches);
  showNumbers(null);
  return update();
}

// Show the example, unless it takes long; false if the visitor has gone on to something else meanwhile.
async function takeStory(own, named) {
  asking = null;
  const story = await learnStorySoon(models);
  if (own !== opening || asking) return false;
  if (story && !namesSomebody(state)) {
    state.liked = [...story.liked];
    if (!named) state.models = [...story.models];
  }
  return true;
}

function take(known) {
  models = dressed(known);
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
  byId("app").hidden = byId("tools").hidden = false;
  return take(known);
}

history.scrollRestoration = "manual"; // lists come later than the browser would scroll
listen();
start();
