// The chat: one conversation with one of the served models, streamed, and stopped for real by closing the stream.

import { Answer } from "./answer.js";
import { byId, element } from "./element.js";
import { events } from "./events.js";

const SPECULATIVE = { auto: "auto", always: true, off: false };

export class Chat {
  /** `onLocked` is called where the gateway does not take the key. */
  constructor(key, sources, onLocked) {
    this.key = key;
    this.sources = sources;
    this.onLocked = onLocked;
    this.messages = [];
    this.running = null; // an AbortController
    this.guessers = new Set();
    this.log = byId("chat-log");
    this.text = byId("chat-text");
    this.status = byId("chat-status");
    this.details = byId("chat-token");
    this.models = byId("chat-model");
    byId("chat-form").addEventListener("submit", (event) => this.#send(event));
    byId("chat-stop").addEventListener("click", () => this.running?.abort());
    byId("chat-new").addEventListener("click", () => this.#clear());
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.#send(event);
    });
    this.#clear();
  }

  /** Offer these models, keeping the chosen one. */
  offer(names) {
    const offered = [...this.models.options].map(({ value }) => value);
    if (offered.join("\n") === names.join("\n")) return;
    const chosen = this.models.value;
    this.models.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    if (names.includes(chosen)) this.models.value = chosen;
  }

  /** Say which mark is whose. */
  legend() {
    const samples = [...this.guessers].map((id) => this.sources.sample(id));
    const refused = element("span", { class: "sample" }, element("span", { class: "mark mark-refused" }, "word"), " the target itself, refusing a guess");
    byId("chat-legend").replaceChildren(...samples, refused, element("span", {}, "no mark: the target itself"));
  }

  #clear() {
    this.running?.abort();
    this.messages = [];
    this.guessers.clear();
    this.log.replaceChildren(element("li", { class: "empty" }, "Ask something: every word of the answer shows who guessed it."));
    this.legend();
    this.status.textContent = "";
  }

  async #send(event) {
    event.preventDefault();
    const text = this.text.value.trim();
    if (!text || this.running) return;
    this.log.querySelector(".empty")?.remove();
    this.text.value = "";
    const asked = [...this.messages, { role: "user", content: text }];
    this.messages = asked;
    const answer = new Answer(this.sources, (details) => (this.details.textContent = details));
    this.#turn("You", "user", element("div", { class: "asked" }, text));
    this.#turn(this.models.value || "Model", "model", answer.node);
    this.running = new AbortController();
    this.#busy(true);
    const ending = await this.#stream(asked, answer, this.running.signal);
    this.running = null;
    this.#busy(false);
    answer.end(ending);
    this.status.textContent = ending ? `${ending}. ${answer.content}` : `Answer: ${answer.content}`;
    if (this.messages !== asked) return; // the conversation was cleared meanwhile
    // A question without any answer is no part of the conversation.
    this.messages = answer.content ? [...asked, { role: "assistant", content: answer.content }] : asked.slice(0, -1);
  }

  /** Read the answer; how it ended otherwise than by itself, "" if it did. */
  async #stream(messages, answer, signal) {
    try {
      const response = await fetch("v1/chat/completions", {
        method: "POST",
        headers: { "Content-Type": "application/json", ...this.key.headers() },
        body: JSON.stringify(this.#body(messages)),
        signal,
      });
      if (!response.ok) return await this.#refusal(response);
      for await (const { data } of events(response)) {
        if (data === "[DONE]") return "";
        const chunk = JSON.parse(data);
        if (chunk.error) return `Failed: ${chunk.error.message}`;
        this.#take(answer, chunk);
      }
      return "The connection broke off";
    } catch {
      return signal.aborted ? "Stopped" : "The gateway cannot be reached";
    }
  }

  async #refusal(response) {
    if (response.status === 401) this.onLocked();
    const said = await response.json().catch(() => null);
    return `Refused: ${said?.error?.message ?? `status ${response.status}`}`;
  }

  #take(answer, chunk) {
    const follows = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 40;
    answer.take(chunk);
    const before = this.guessers.size;
    answer.guessers.forEach((id) => this.guessers.add(id));
    if (this.guessers.size > before) this.legend();
    if (follows) this.log.scrollTop = this.log.scrollHeight;
  }

  #body(messages) {
    const number = (id) => (byId(id).value === "" ? undefined : Number(byId(id).value));
    return {
      model: this.models.value || undefined,
      messages,
      stream: true,
      stream_options: { include_usage: true },
      logprobs: true,
      speculative_trace: true,
      speculative: SPECULATIVE[byId("chat-drafts").value],
      temperature: number("chat-temperature"),
      max_tokens: number("chat-tokens"),
    };
  }

  #turn(name, kind, content) {
    this.log.append(element("li", { class: `turn ${kind}` }, element("p", { class: "who muted" }, name), content));
    this.log.scrollTop = this.log.scrollHeight;
  }

  #busy(busy) {
    byId("chat-stop").hidden = !busy;
    byId("chat-send").disabled = busy;
    if (busy) this.status.textContent = "Answering";
    else if (document.activeElement === document.body) this.text.focus(); // the stop button had it and is gone
  }
}
