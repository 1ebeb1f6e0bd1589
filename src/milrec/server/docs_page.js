// The page at /docs: puts the address that it came from into the examples, and sends requests.

const KEY = "milrec-key"; // as on the explorer's page: one key for both
const LONGEST = 100_000; // characters of an answer that are shown

const forms = [...document.querySelectorAll("form.request")];
const keyForm = document.getElementById("key");
const keySaid = document.getElementById("key-said");
const touched = new WeakSet(); // what the visitor has written stays

const key = () => sessionStorage.getItem(KEY);
const quoted = (text) => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
const bodyOf = (form) => form.elements.namedItem("body");

function addressOf(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  for (const input of form.querySelectorAll("[data-place]")) {
    if (input.dataset.place === "path") path = path.replace(`{${input.name}}`, () => encodeURIComponent(input.value) || `{${input.name}}`);
    else if (input.value !== "") query.set(input.name, input.value);
  }
  return path + (query.size ? `?${query}` : "");
}

function showCommand(form) {
  const parts = [`curl ${quoted(location.origin + addressOf(form))}`];
  if (form.dataset.method !== "GET" && !bodyOf(form)) parts[0] = parts[0].replace("curl", "curl -X POST");
  if (key() !== null) parts.push("-H 'Authorization: Bearer KEY'");
  if (bodyOf(form)) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(bodyOf(form).value.trim().replace(/\s*\n\s*/g, " "))}`);
  form.parentElement.querySelector(".curl").textContent = parts.join(" \\\n  ");
}

async function fetched(path, method = "GET", body = undefined) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  if (key() !== null) headers.Authorization = `Bearer ${key()}`;
  const started = performance.now();
  const answer = await fetch(path, { method, headers, body, cache: "no-store" });
  const text = await answer.text();
  return { answer, text, milliseconds: performance.now() - started };
}

async function found(path) {
  const { answer, text } = await fetched(path);
  if (answer.status === 401) keySaid.textContent = key() === null ? "This server needs a key." : "The server does not know this key.";
  if (!answer.ok) throw new Error(text);
  return JSON.parse(text);
}

// JSON on several lines. Numbers stay as they were sent: a script's own would lose digits of large ones.
function inLines(text) {
  let [lines, depth] = ["", 0];
  const next = (change = 0) => `\n${"  ".repeat((depth += change))}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|\[\]|\{\}|[[\]{},:]|[^\s[\]{},:"]+/g)) {
    if (token === "{" || token === "[") lines += token + next(1);
    else if (token === "}" || token === "]") lines += next(-1) + token;
    else if (token === ",") lines += token + next();
    else if (token === ":") lines += ": ";
    else lines += token.startsWith('"') ? JSON.stringify(JSON.parse(token)) : token;
  }
  return lines;
}

async function send(form) {
  const [button, said, shown] = ["button", "output", ".answer"].map((one) => form.querySelector(one));
  button.disabled = true;
  said.textContent = "…";
  said.className = "";
  try {
    const { answer, text, milliseconds } = await fetched(addressOf(form), form.dataset.method, bodyOf(form)?.value);
    const lines = answer.headers.get("content-type")?.startsWith("application/json") ? inLines(text) : text;
    said.textContent = `${answer.status} ${answer.statusText} in ${milliseconds.toFixed(0)} ms`.replace(/ +/g, " ");
    if (!answer.ok) said.className = "wrong";
    shown.textContent = lines.length > LONGEST ? `${lines.slice(0, LONGEST)}\n… (${lines.length - LONGEST} more characters)` : lines;
    shown.hidden = false;
  } catch {
    said.textContent = "The server does not answer; is it still running?";
    said.className = "wrong";
    shown.hidden = true;
  }
  button.disabled = false;
}

// A request that works here, for each kind of body; others keep the example of the schema.
const bodies = {
  RecommendBody: ({ model, items }) => ({ model, adopted: items, n: 5 }),
  BatchBody: ({ model, items, user }) => ({
    requests: [{ model, adopted: items, n: 5 }, ...(user === undefined ? [] : [{ model, user, n: 5 }])],
  }),
};

function fill(form, real) {
  const values = { name: real.model, item: real.items[0], user: real.user };
  for (const input of form.querySelectorAll("[data-place=path], [required]")) {
    if (!touched.has(input) && values[input.name] !== undefined) input.value = values[input.name];
  }
  const body = bodyOf(form);
  const example = bodies[form.dataset.body];
  if (body && example && !touched.has(body)) body.value = JSON.stringify(example(real), null, 2);
  showCommand(form);
}

async function fillAll() {
  keySaid.textContent = "";
  try {
    const { default: model } = await found("/v1/models");
    const place = `/v1/models/${encodeURIComponent(model)}`;
    const [{ items }, { users }] = await Promise.all([found(`${place}/items?n=2`), found(`${place}/users?n=1`)]);
    const real = { model, items: items.map((one) => one.item), user: users[0] };
    forms.forEach((form) => fill(form, real));
  } catch {
    forms.forEach(showCommand); // the examples of the schema remain
  }
}

for (const form of forms) {
  form.addEventListener("input", (event) => {
    touched.add(event.target);
    showCommand(form);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
  form.hidden = false;
}

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = document.getElementById("key-text").value.trim();
  if (/[^!-~]/u.test(text)) {
    keySaid.textContent = "A key has no spaces, accents or signs that are not plain.";
    return;
  }
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
  fillAll();
});
keyForm.hidden = false;
document.getElementById("address").textContent = location.origin;
fillAll();
