// The dial: which share of the lists comes from the long tail, the same for all models; or off.

import { byId } from "./dom.js";
import { canAim, isShare } from "./state.js";

const percentOf = (share) => Number((100 * share).toFixed(4));
const shareOf = (percent) => Number((percent / 100).toFixed(6));

// The number as the state has it; what is being typed stays.
export function showDialNumber(state, typing) {
  if (typing === byId("dial-number")) return;
  byId("dial-number").value = state.long === null ? "" : percentOf(state.long);
  judge(true);
}

// Off, the slider rests where the first model's lists are by themselves.
export function showDial(state, models) {
  const able = models.filter(canAim);
  const off = state.long === null;
  byId("dial").value = percentOf(off ? able[0]?.tail_shares.long ?? 0 : state.long);
  byId("dial").setAttribute("aria-valuetext", off ? "off, lists as the models make them" : `${percentOf(state.long)} % of the list from the long tail`);
  for (const name of ["dial", "dial-number"]) byId(name).disabled = !able.length;
  byId("dial-card").classList.toggle("off", off);
  byId("dial-off").hidden = off && state.dial === 0;
  byId("dial-said").textContent = sentence(state, able.length > 0);
}

function sentence(state, able) {
  if (state.dial !== 0) return `The old popularity dial of the link is at ${state.dial}; a long-tail share takes its place.`;
  if (!able) return "The chosen models have no probabilities, which the dial goes by: their lists are as the models make them.";
  if (state.long === null) return "Off: the lists are as the models make them.";
  return `${percentOf(state.long)} % of a list on average over users, wherever it costs the fewest hits; a single list may have more or less.`;
}

function judge(good) {
  byId("dial-wrong").textContent = good ? "" : "A share is 0 to 100 %.";
  byId("dial-number").setAttribute("aria-invalid", !good);
  return good;
}

// change(share), null for off; settle(): the number shows again what is in force.
export function listenToDial(change, settle) {
  const [slider, number] = [byId("dial"), byId("dial-number")];
  slider.addEventListener("input", () => change(shareOf(slider.value)));
  number.addEventListener("input", () => {
    const share = number.value === "" ? null : shareOf(number.value);
    if (judge(!number.validity.badInput && (share === null || isShare(share)))) change(share);
  });
  number.addEventListener("blur", settle);
  byId("dial-off").addEventListener("click", () => {
    change(null);
    (slider.disabled ? byId("n") : slider).focus(); // the button is gone
  });
}
