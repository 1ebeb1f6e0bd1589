// The dial: which share of the lists comes from the long tail, the same for all models; or off.
// Off is a switch and an empty track; 0 % is a thumb at the left end.

import { byId, make, percent } from "./dom.js";
import { canAim, isShare } from "./state.js";

const percentOf = (share) => Number((100 * share).toFixed(4));
const shareOf = (value) => Number((value / 100).toFixed(6));

let last = 0.3; // the share that the switch turns on: the one before it was turned off

// The number as the state has it; what is being typed stays.
export function showDialNumber(state, typing) {
  if (typing === byId("dial-number")) return;
  byId("dial-number").value = state.long === null ? "" : percentOf(state.long);
  judge(true);
}

// Off, arrow keys begin where the first model's lists are by themselves.
export function showDial(state, models) {
  const able = models.filter(canAim);
  const off = state.long === null;
  const [slider, toggle] = [byId("dial"), byId("dial-switch")];
  if (!off) last = state.long;
  slider.value = percentOf(off ? able[0]?.tail_shares.long ?? 0 : state.long);
  slider.style.setProperty("--fill", off ? "0%" : `${percentOf(state.long)}%`);
  slider.setAttribute("aria-valuetext", off ? "off, each model makes its own list" : `${percentOf(state.long)} % of the list from the long tail`);
  for (const part of [slider, byId("dial-number")]) part.disabled = !able.length;
  toggle.disabled = !able.length && off && state.dial === 0;
  toggle.setAttribute("aria-checked", !off || state.dial !== 0);
  byId("dial-card").classList.toggle("off", off);
  byId("dial-said").textContent = sentence(state, able.length > 0);
  byId("dial-marks").replaceChildren(...able.map((model) => {
    const mark = make("span", { class: `own ${model.colour}`, title: `${model.label} by itself: ${percent(model.tail_shares.long)}` });
    mark.style.setProperty("--at", model.tail_shares.long);
    return mark;
  }));
}

function sentence(state, able) {
  return `${aim(state, able)}${state.rules.length ? " The rules below count as well." : ""}`;
}

function aim(state, able) {
  if (state.dial !== 0) return `This link sets the old popularity dial to ${state.dial}. Moving the slider replaces it.`;
  if (!able) return "The chosen models have no probabilities, which the slider needs. They make their own lists.";
  if (state.long === null) return "Off: each model makes its own list. The dots show how much of it is long tail, on average.";
  return `${percentOf(state.long)} % on average over all users, where it costs the least. A single list may differ; for a taste of a few items it often has far more.`;
}

function judge(good) {
  byId("dial-wrong").textContent = good ? "" : "A share is 0 to 100 %.";
  byId("dial-number").setAttribute("aria-invalid", !good);
  return good;
}

// change(share), null for off; settle(): the number shows again what is in force.
export function listenToDial(change, settle) {
  const [slider, number, toggle] = [byId("dial"), byId("dial-number"), byId("dial-switch")];
  slider.addEventListener("input", () => change(shareOf(slider.value)));
  number.addEventListener("input", () => {
    const share = number.value === "" ? null : shareOf(number.value);
    if (judge(!number.validity.badInput && (share === null || isShare(share)))) change(share);
  });
  number.addEventListener("blur", settle);
  toggle.addEventListener("click", () => {
    const on = toggle.getAttribute("aria-checked") === "true";
    change(on ? null : last);
    settle();
  });
}
