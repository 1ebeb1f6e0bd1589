// A text field that searches while one types: the editable combobox with list of the WAI-ARIA practices.

import { later, make } from "./dom.js";

// find(text, signal) → [{value, label, detail, tail}]; choose(option). With free, what was typed may stand by itself.
export function combobox({ field, id, placeholder, find, choose, free = false }) {
  const list = make("ul", { id: `${id}-options`, role: "listbox", "aria-label": placeholder, hidden: true });
  const said = make("p", { role: "status", class: "soft found" });
  const input = make("input", {
    id, placeholder, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false",
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${id}-options`,
  });
  let options = [];
  let active = -1;
  let shownFor = ""; // the text that the options were found for
  let asking = null;

  function close() {
    asking?.abort();
    options = [];
    active = -1;
    list.replaceChildren();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function activate(place) {
    active = place;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", at === place));
    const option = list.children[place];
    if (!option) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  function take(option) {
    close();
    said.textContent = "";
    input.value = "";
    choose(option);
    input.focus();
  }

  function show(found, text) {
    close();
    options = found;
    shownFor = text;
    said.textContent = found.length ? "" : `Nothing found for '${text}'.`;
    if (!found.length) return;
    list.append(...found.map((option, place) => make("li",
      { role: "option", id: `${id}-option-${place}`, onpointerdown: (event) => event.preventDefault(), onclick: () => take(option) },
      option.tail && make("span", { class: `dot ${option.tail}` }),
      make("span", { class: "name" }, option.label), option.detail && make("small", {}, option.detail))));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    activate(0);
  }

  async function search() {
    const text = input.value.trim();
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    if (!text) {
      said.textContent = "";
      return close();
    }
    try {
      const found = await find(text, signal);
      if (!signal.aborted) show(found, text);
    } catch (error) {
      if (signal.aborted) return;
      close();
      said.textContent = error.message;
    }
  }

  const soon = later(120, search);

  async function enter() {
    const text = input.value.trim();
    if (!text) return;
    if (active < 0 || shownFor !== text) await search();
    const exact = options.find((option) => option.value === text);
    if (free && (exact || !options.length)) take(exact ?? { value: text, label: text });
    else if (active >= 0) take(options[active]);
  }

  input.addEventListener("input", soon);
  input.addEventListener("blur", () => setTimeout(() => document.activeElement !== input && close(), 100));
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) activate((active + step + options.length) % options.length);
    else if (step) search();
    else if (event.key === "Enter") enter();
    else if (event.key === "Escape" && options.length) close();
    else if (event.key === "Escape") input.value = "";
    else return;
    event.preventDefault();
  });
  field.append(make("div", { class: "combobox" }, input, list), said);
  return input;
}
