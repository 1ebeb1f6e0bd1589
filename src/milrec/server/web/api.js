// The service's answers; every failure is an Error whose message is one sentence to show.

import { plain } from "./names.js";

const KEY = "milrec-key";

export class KeyNeeded extends Error {}
export class NotThere extends Error {}

export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const foreignSign = (key) => /[^!-~]/u.exec(key)?.[0]; // keys are plain signs, all that a header may hold
export const hasKey = () => sessionStorage.getItem(KEY) !== null;

// The server's sentences begin small, as they stand in a log too.
const sentence = (text) => plain(text.charAt(0).toUpperCase() + text.slice(1));

async function ask(path, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  if (hasKey()) headers.Authorization = `Bearer ${sessionStorage.getItem(KEY)}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is it still running?");
  }
  let body = null;
  try {
    body = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (answer.ok && body !== null) return body;
  const said = sentence(body?.error ?? `The server answered with ${answer.status} and no reason.`);
  if (answer.status === 401 || answer.status === 403) throw new KeyNeeded(said);
  if (answer.status === 404) throw new NotThere(said);
  throw new Error(said);
}

const of = (model, rest) => `v1/models/${encodeURIComponent(model)}/${rest}`;
const search = (text, n) => new URLSearchParams({ search: text, n });

export const allModels = (signal) => ask("v1/models", { signal });
export const popularityCurve = (model, signal) => ask(of(model, "popularity?points=200"), { signal });
export const oneItem = (model, item, signal) => ask(of(model, `items/${encodeURIComponent(item)}`), { signal });
export const findItems = (model, text, signal) => ask(of(model, `items?${search(text, 8)}`), { signal });
export const findUsers = (model, text, signal) => ask(of(model, `users?${search(text, 8)}`), { signal });
export const similarItems = (model, item, n, signal) => ask(of(model, `items/${encodeURIComponent(item)}/similar?n=${n}`), { signal });
export const listedWith = (model, item, n, signal) => ask(of(model, `listed-with?item=${encodeURIComponent(item)}&n=${n}`), { signal });
export const story = () => ask("v1/story");
export const oneUser = (model, user, signal) => ask(of(model, `users/${encodeURIComponent(user)}`), { signal });

// Answers to several requests at once; each is a list, or {error: sentence}.
export async function recommend(requests, signal) {
  const body = JSON.stringify({ requests });
  const headers = { "Content-Type": "application/json" };
  const { answers } = await ask("v1/recommend/batch", { method: "POST", body, headers, signal });
  return answers.map((answer) => (answer.error ? { error: sentence(answer.error) } : answer));
}
