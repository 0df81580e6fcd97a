// Who guesses: a name, a mark and a place in the legend for every drafter, the same all over the page.

import { element } from "./element.js";

const MARKS = 6; // styles in style.css; a seventh drafter shares the first one's colour, not its name
const GRAMMAR = "grammar";

export class Sources {
  constructor() {
    this.known = new Map(); // id: { mark, name }
  }

  /** Learn the names of drafters from a snapshot; those that left keep theirs. Whether there was a new one. */
  learn(drafters) {
    let learned = false;
    for (const { id, kind, model, device, host } of drafters) {
      const name = `${kind === "model" ? `${model} on ${device}` : model}, ${host}`;
      const entry = this.#entry(id);
      learned ||= entry.name !== name;
      entry.name = name;
    }
    return learned;
  }

  /** What people call it. */
  name(id) {
    if (id === GRAMMAR) return "the grammar, which left no choice";
    return this.#entry(id).name || id;
  }

  /** The class of its mark; "" for the target's own tokens. */
  mark(id) {
    if (!id) return "";
    return id === GRAMMAR ? "mark-grammar" : `mark-${this.#entry(id).mark}`;
  }

  /** A sample of the mark with the name beside it. */
  sample(id) {
    return element("span", { class: "sample" }, element("span", { class: `mark ${this.mark(id)}` }, "word"), ` ${this.name(id)}`);
  }

  #entry(id) {
    let entry = this.known.get(id);
    if (!entry) {
      entry = { mark: this.known.size % MARKS, name: "" };
      this.known.set(id, entry);
    }
    return entry;
  }
}
