// Plain names: models by what they learn with, and the three parts of the catalogue. The API's own words stay in the details.

const LOSSES = {
  mil: "Missing-information loss", pointwise: "Cross-entropy", multinomial: "Multinomial cross-entropy",
  pairwise: "Pairwise loss", square: "Squared error",
};
const MODELS = {
  ease: "EASE", "ease-sparse": "Sparse EASE", slim: "SLIM", wmf: "Weighted factorization", popularity: "Popularity",
};

export const TAILS = ["short", "medium", "long"];
export const TAIL_NAMES = { short: "hits", medium: "middle", long: "long tail" }; // of many items
export const TAIL_NAME = { short: "hit", medium: "middle", long: "long tail" }; // of one

const PLAIN = [
  ["the short tail", "the hits"], ["the medium tail", "the middle"],
  ["for a new user, give adopted items and no user", "for somebody new, choose ‘A taste’ and add what they like"],
  ["give adopted items instead", "choose ‘A taste’ and add what somebody likes"],
  ["no adopted items of this user are known", "nothing is known yet that this person likes"],
];

// The server's sentences, in the page's words.
export const plain = (sentence) => PLAIN.reduce((said, [word, ours]) => said.replaceAll(word, ours), sentence);

export const nameOf = (item) => item.title ?? item.item;

const plainName = (model) => MODELS[model.model] ?? LOSSES[model.loss] ?? model.name;

// The same models, each with the name that people see; two that would share one also get the server's own.
export function withNames(models) {
  const names = models.map(plainName);
  return models.map((model, at) => {
    const shared = names.filter((name) => name === names[at]).length > 1;
    return { ...model, label: shared && names[at] !== model.name ? `${names[at]} (${model.name})` : names[at] };
  });
}

// "A", "A and B", "A, B and C"
export const joined = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);
