// What is asked of the server once for each data set: items, for their titles on the chips, and popularity curves.

import * as api from "./api.js";

const items = new Map(); // data and id → item; null where the catalogue has none
const curves = new Map(); // data → curve

const dataOf = (model) => model.fitted.train_fingerprint; // models of the same data share it
const keyOf = (model, id) => `${dataOf(model)} ${id}`;

export const itemOf = (model, id) => items.get(keyOf(model, id));
export const keepItem = (model, item) => items.set(keyOf(model, item.item), item);

// Whether any of these was new; one that the server did not answer for is asked for again the next time.
export async function learnItems(model, ids, signal) {
  const missing = ids.filter((id) => !items.has(keyOf(model, id)));
  await Promise.all(missing.map(async (id) => {
    try {
      items.set(keyOf(model, id), await api.oneItem(model.name, id, signal));
    } catch (error) {
      if (error instanceof api.NotThere) items.set(keyOf(model, id), null);
    }
  }));
  return missing.length > 0;
}

export async function learnCurve(model, signal) {
  const data = dataOf(model);
  if (!curves.has(data)) curves.set(data, await api.popularityCurve(model.name, signal));
  return curves.get(data);
}
