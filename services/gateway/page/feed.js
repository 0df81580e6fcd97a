// The stream of snapshots: it reconnects by itself, and rests while nobody sees the page.

import { events } from "./events.js";

const SILENCE_MS = 8000; // a snapshot comes every second; a connection that is silent for so long is dead
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 5000;
const HIDDEN_MS = 10000; // browsers allow six connections to a host: tabs in the back must not hold them all

export class Feed {
  /** `on` has a function for each of: event(type, value), state(name), locked(). */
  constructor(url, key, on) {
    this.url = url;
    this.key = key;
    this.on = on;
    this.retryMs = FIRST_RETRY_MS;
    this.connection = null;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.#seen(!document.hidden));
    window.addEventListener("online", () => this.restart());
  }

  /** Connect, now, whatever is going on. */
  restart() {
    clearTimeout(this.timer);
    this.connection?.abort();
    this.retryMs = FIRST_RETRY_MS;
    this.#connect();
  }

  async #connect() {
    const connection = new AbortController();
    this.connection = connection;
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => connection.abort(), SILENCE_MS);
    };
    let locked = false;
    try {
      heard();
      const response = await fetch(this.url, {
        headers: this.key.headers(),
        cache: "no-store",
        signal: connection.signal,
      });
      locked = response.status === 401;
      if (!response.ok) throw new Error(`status ${response.status}`);
      this.key.accepted();
      for await (const { type, data } of events(response)) {
        heard();
        this.retryMs = FIRST_RETRY_MS;
        this.on.event(type, JSON.parse(data));
      }
    } catch {
      // Whatever it was, the answer is to try again.
    } finally {
      clearTimeout(silence);
    }
    if (this.connection !== connection) return; // another one took over
    this.connection = null;
    if (locked) {
      this.on.state("locked");
      this.on.locked();
    } else if (document.hidden) {
      this.on.state("resting");
    } else {
      this.on.state("disconnected");
      this.timer = setTimeout(() => this.#connect(), this.retryMs * (0.75 + Math.random() / 2));
      this.retryMs = Math.min(LONGEST_RETRY_MS, this.retryMs * 2);
    }
  }

  #seen(seen) {
    clearTimeout(this.timer);
    if (!seen) this.timer = setTimeout(() => this.connection?.abort(), HIDDEN_MS);
    else if (!this.connection) this.restart();
  }
}
