// The popularity of the whole catalogue, both axes logarithmic, with the listed items on it: a lane of marks per model.

import { byId, count, draw, make } from "./dom.js";
import { TAILS, TAIL_NAME, TAIL_NAMES, nameOf } from "./names.js";

const HEIGHT = 150;
const LANE = 18;
const LEFT = 40;
const RIGHT = 12;
const TOP = 20;

// curve: the server's answer; entries: those with an answer. width: what there is room for, in pixels.
export function popularityFigure(curve, entries, width) {
  const bottom = TOP + HEIGHT;
  const height = bottom + 26 + LANE * entries.length + 6;
  const { most, x, y } = scales(curve, width, bottom);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Popularity of the catalogue, with the listed items marked" });
  picture.append(intervals(curve, x, height), axes(curve, most, x, y, bottom, width), line(curve, x, y));
  const tip = make("div", { class: "tip", hidden: true });
  const spots = onTheCurve(entries, x, y);
  picture.append(spots.group, lanes(entries, x, bottom + 26, width, tip, spots.of));
  return [picture, tip];
}

// The same without lists: one item, and how it stands to all others.
export function placeFigure(curve, item, width) {
  const bottom = TOP + HEIGHT;
  const { most, x, y } = scales(curve, width, bottom);
  const said = `Place ${count(item.place)} of ${count(curve.n_items)} by popularity, ${count(item.popularity)} adopters, ${TAIL_NAME[item.tail]}`;
  const [left, top] = [x(item.place), y(item.popularity)];
  return draw("svg", { viewBox: `0 0 ${width} ${bottom + 24}`, width, height: bottom + 24, role: "img", "aria-label": said },
    intervals(curve, x, bottom), axes(curve, most, x, y, bottom, width), line(curve, x, y),
    draw("line", { class: "drop", x1: left, x2: left, y1: top, y2: bottom }),
    draw("circle", { class: `spot here ${item.tail}`, cx: left, cy: top, r: 7 }));
}

function scales(curve, width, bottom) {
  const most = Math.max(2, curve.popularity[0]);
  return {
    most,
    x: (place) => LEFT + ((width - LEFT - RIGHT) * Math.log(place)) / Math.log(Math.max(2, curve.n_items)),
    y: (popularity) => bottom - (HEIGHT * Math.log(Math.max(1, popularity))) / Math.log(most),
  };
}

function line(curve, x, y) {
  const points = curve.ranks.map((rank, at) => `${x(rank).toFixed(1)},${y(curve.popularity[at]).toFixed(1)}`).join(" ");
  return draw("polyline", { class: "line", points });
}

function intervals(curve, x, height) {
  const edges = [1, curve.cuts.short, curve.cuts.medium, curve.n_items];
  return draw("g", { "aria-hidden": "true" }, TAILS.map((tail, at) => {
    const [from, to] = [x(Math.max(1, edges[at])), x(Math.max(1, edges[at + 1]))];
    const name = to - from < 44 ? "" : TAIL_NAMES[tail];
    return draw("g", {}, draw("rect", { class: `band ${tail}`, x: from, y: TOP, width: Math.max(0, to - from), height: height - TOP }),
      draw("text", { class: `band-name ${tail}`, x: (from + to) / 2, y: TOP - 6, "text-anchor": "middle" }, name));
  }));
}

function powers(most) {
  const out = [];
  for (let value = 1; value <= most; value *= 10) out.push(value);
  return out;
}

function axes(curve, most, x, y, bottom, width) {
  const group = draw("g", { "aria-hidden": "true" });
  for (const value of powers(most)) {
    group.append(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      draw("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, count(value)));
  }
  for (const value of powers(curve.n_items).filter((one) => x(one) < width - 150)) { // the name of the axis needs room
    group.append(draw("text", { x: x(value), y: bottom + 15, "text-anchor": value === 1 ? "start" : "middle" }, value === 1 ? "1st" : count(value)));
  }
  group.append(draw("text", { x: width - RIGHT, y: bottom + 15, "text-anchor": "end" }, "place by popularity"),
    draw("text", { x: LEFT + 6, y: bottom - 8 }, "adopters"));
  return group;
}

function onTheCurve(entries, x, y) {
  const of = new Map();
  for (const item of entries.flatMap((entry) => entry.answer.items)) {
    if (!of.has(item.item)) of.set(item.item, draw("circle", { class: `spot ${item.tail}`, cx: x(item.place), cy: y(item.popularity), r: 3.5 }));
  }
  return { of, group: draw("g", { "aria-hidden": "true" }, ...of.values()) };
}

// Marks of all models: one stop of the tab key, arrow keys go from mark to mark.
function lanes(entries, x, top, width, tip, spots) {
  const marks = [];
  const group = draw("g", { role: "group", "aria-label": "Listed items by popularity; arrow keys move from one to the next" });
  entries.forEach((entry, at) => {
    const middle = top + LANE * at + LANE / 2;
    group.append(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: middle, y2: middle }));
    const lane = entry.answer.items.toSorted((one, other) => one.place - other.place);
    for (const item of lane) {
      const said = `${nameOf(item)}: number ${item.rank} in ${entry.model.label}, place ${count(item.place)} by popularity, ${count(item.popularity)} adopters, ${TAIL_NAME[item.tail]}`;
      const mark = draw("g", { class: `mark ${entry.colour}`, tabindex: -1, role: "img", "aria-label": said, "data-item": item.item },
        draw("rect", { class: "reach", x: x(item.place) - 6, y: middle - LANE / 2, width: 12, height: LANE }),
        draw("rect", { class: "tick", x: x(item.place) - 2, y: middle - 7, width: 4, height: 14, rx: 2 }));
      const show = () => point(item, mark, said, x(item.place), middle, width, tip, spots);
      const hide = () => unpoint(mark, tip, spots.get(item.item));
      for (const [name, action] of [["pointerenter", show], ["focus", show], ["pointerleave", hide], ["blur", hide]]) mark.addEventListener(name, action);
      marks.push(mark);
      group.append(mark);
    }
  });
  marks[0]?.setAttribute("tabindex", 0);
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const here = marks.indexOf(document.activeElement);
    const next = marks[(here + step + marks.length) % marks.length];
    marks[here]?.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  });
  return group;
}

function point(item, mark, said, left, top, width, tip, spots) {
  mark.classList.add("pointed");
  spots.get(item.item).classList.add("pointed");
  light(item.item, true);
  tip.replaceChildren(make("b", {}, nameOf(item)), said.slice(nameOf(item).length + 1));
  tip.hidden = false;
  tip.style.top = `${top + 14}px`;
  tip.style.left = `${Math.max(0, Math.min(left - tip.offsetWidth / 2, width - tip.offsetWidth))}px`;
}

function unpoint(mark, tip, spot) {
  mark.classList.remove("pointed");
  spot.classList.remove("pointed");
  light(mark.dataset.item, false);
  tip.hidden = true;
}

// The same item in the lists, and its marks, stand out together.
export function light(item, on) {
  const same = `[data-item="${CSS.escape(item)}"]`;
  for (const row of byId("lists").querySelectorAll(same)) row.classList.toggle("lit", on);
}
