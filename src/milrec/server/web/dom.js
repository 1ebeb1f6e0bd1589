// Elements without markup: every text from data goes in as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

// make("li", {class: "chip", onclick: drop}, "text", child, …); false, null and undefined are left out.
export function make(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function draw(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function later(wait, action) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), wait);
  };
}

export const count = (number) => Number(number).toLocaleString("en");

export const percent = (share) => `${Math.round(100 * share)} %`;

// A probability with two significant digits: 32 % · 3.2 % · 0.32 %
export function chance(probability) {
  const value = 100 * probability;
  if (value >= 99.5) return "> 99 %";
  return value < 0.001 ? "< 0.001 %" : `${value.toPrecision(2)} %`;
}

// Expected hits: 12.3 · 2.25 · fewer than 1
export const hits = (number) => (number >= 10 ? number.toFixed(1) : number >= 1 ? number.toFixed(2) : "fewer than 1");

// A number as short as a person would say it: 1,204 · 87 · 3.4
export const about = (number) => (number >= 10 ? count(Math.round(number)) : Number(number).toFixed(1));
