// One answer as it arrives: a mark on every token, and the details of the one that is looked at.

import { element } from "./element.js";
import { decimal, percent, whole } from "./numbers.js";

const TARGET = "the target itself";

export class Answer {
  /** `onLook(text)` is told about the token under the pointer, the finger or the arrow keys. */
  constructor(sources, onLook) {
    this.sources = sources;
    this.onLook = onLook;
    this.tokens = []; // { text, source, refused, probability }
    this.traced = "";
    this.content = "";
    this.active = -1;
    this.text = element("div", {
      class: "answer",
      role: "group",
      tabindex: "0",
      "aria-label": "Answer; arrow keys step through its tokens",
    });
    this.note = element("p", { class: "note muted" });
    this.node = element("div", {}, this.text, this.note);
    this.text.addEventListener("pointerover", (event) => this.#point(event));
    this.text.addEventListener("click", (event) => this.#point(event));
    this.text.addEventListener("keydown", (event) => this.#step(event));
    this.text.addEventListener("blur", () => this.#look(-1));
  }

  /** Take a chunk of the stream in. */
  take(chunk) {
    const choice = chunk.choices?.[0];
    if (chunk.speculative) this.#close(chunk);
    if (!choice) return;
    this.content += choice.delta?.content ?? "";
    const logprobs = choice.logprobs?.content ?? [];
    (choice.trace ?? []).forEach((token, index) => {
      const logprob = logprobs[index]?.logprob;
      this.traced += token.text;
      this.#add({ ...token, probability: logprob === undefined ? null : Math.exp(logprob) });
    });
  }

  /** The stream is over. */
  end(how) {
    // Text that was held back belongs to no new token.
    const rest = this.content.startsWith(this.traced) ? this.content.slice(this.traced.length) : "";
    if (rest) this.text.append(rest);
    if (how) this.note.textContent = this.note.textContent ? `${this.note.textContent} · ${how}` : how;
  }

  /** Whose tokens are in it. */
  get guessers() {
    return [...new Set(this.tokens.map(({ source }) => source).filter(Boolean))];
  }

  #add(token) {
    const classes = ["token", this.sources.mark(token.source), token.refused ? "mark-refused" : ""];
    this.text.append(element("span", { class: classes.filter(Boolean).join(" "), "data-index": this.tokens.length }, token.text));
    this.tokens.push(token);
  }

  #close({ speculative, timings }) {
    const parts = [`${whole(this.tokens.length)} tokens`];
    if (timings?.predicted_per_second) parts.push(`${decimal(timings.predicted_per_second)} tokens/s`);
    parts.push(`${decimal(speculative.tokens_per_round, 2)} per round`);
    if (speculative.drafted) parts.push(`${percent(speculative.acceptance_rate)} of drafts accepted`);
    else parts.push(`no drafts verified: ${speculative.reason ?? "none came"}`);
    this.note.textContent = parts.join(" · ");
  }

  #point(event) {
    const index = event.target.dataset?.index;
    if (index !== undefined) this.#look(Number(index));
  }

  #step(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || !this.tokens.length) return;
    event.preventDefault();
    this.#look(Math.min(this.tokens.length - 1, Math.max(0, this.active + step)));
  }

  #look(index) {
    this.text.querySelector(".looked-at")?.classList.remove("looked-at");
    this.active = index;
    if (index < 0) return;
    const span = this.text.querySelector(`[data-index="${index}"]`);
    span.classList.add("looked-at");
    this.onLook(this.#details(this.tokens[index]));
  }

  #details({ text, source, refused, probability }) {
    const drawn = refused ? `drawn by ${TARGET}, which refused another guess` : `drawn by ${TARGET}, without a guess`;
    const who = source ? `guessed by ${this.sources.name(source)}; accepted` : drawn;
    const word = text.replaceAll("\n", "⏎") || "(no text yet)";
    return `“${word}” ${who}${probability === null ? "" : `; probability ${(probability * 100).toFixed(1)} %`}`;
  }
}
