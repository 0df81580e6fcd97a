// The API key: kept by this tab alone, sent as a header, asked for when the gateway wants one.

import { byId } from "./element.js";

const STORED = "draftmesh.key";
const SENDABLE = /^[\x21-\x7e]+$/; // no header can hold anything else, and no key does

export class Key {
  /** `onGiven` is called with every key that was typed in. */
  constructor(onGiven) {
    this.form = byId("key-form");
    this.field = byId("key");
    this.error = byId("key-error");
    this.value = "";
    try {
      this.value = sessionStorage.getItem(STORED) ?? "";
    } catch {
      // Storage is off: it holds until the page is left.
    }
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#keep(this.field.value.trim());
      onGiven();
    });
  }

  /** Headers for a request. */
  headers() {
    return SENDABLE.test(this.value) ? { Authorization: `Bearer ${this.value}` } : {};
  }

  /** The gateway did not take the key, or wants one. */
  ask() {
    if (this.form.hidden) {
      this.form.hidden = false;
      this.field.focus();
    }
    this.error.textContent = this.value ? "The gateway does not know this key." : "";
  }

  /** The gateway answered. */
  accepted() {
    this.form.hidden = true;
    this.field.value = "";
    this.error.textContent = "";
  }

  #keep(value) {
    this.value = value;
    try {
      sessionStorage.setItem(STORED, value);
    } catch {
      // As above.
    }
  }
}
