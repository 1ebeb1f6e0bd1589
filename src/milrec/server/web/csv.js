// What is shown, as a CSV file made in the browser.

// A text that a spreadsheet would take for a formula gets an apostrophe in front; numbers stay numbers.
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : value;
  return `"${text.replaceAll('"', '""')}"`;
}

export const csvOf = (header, rows) => [header, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";

// Columns and intervals are named as in the library's tables.
const LIST = ["model", "position", "item", "title", "score", "probability", "popularity", "interval", "place", "because_of"];

export const listsCsv = (entries) => csvOf(LIST, entries.flatMap(({ model, answer }) => answer.items.map((item) => [
  model.label, item.rank, item.item, item.title, item.score, item.probability, item.popularity, item.tail, item.place,
  item.reasons.map((reason) => reason.title ?? reason.item).join("; "),
])));

const ITEM = ["about", "model", "table", "position", "item", "title", "popularity", "interval", "place", "lists", "likeness"];

export const itemCsv = (about, model, tables) => csvOf(ITEM, Object.entries(tables).flatMap(([table, items]) => items.map((item) => [
  about, model, table, item.rank, item.item, item.title, item.popularity, item.tail, item.place, item.lists, item.likeness,
])));

export function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" })); // the mark tells spreadsheets that it is UTF-8
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
