// A line chart of the last minutes as inline SVG, with its newest value in large and a sentence for screen readers.

import { drawing, element } from "./element.js";

const WIDTH = 300;
const HEIGHT = 64;
const SPAN_S = 300;
const GAP_S = 12; // a longer silence is a hole in the line

export class Chart {
  /** `series` are { name, value(point), kind }, the first one in large; `shown(value)` is a number as text. */
  constructor({ title, series, shown, least }) {
    Object.assign(this, { title, series, shown, least });
    this.paths = series.map(({ kind }) => drawing("path", { class: `line ${kind}`, "vector-effect": "non-scaling-stroke" }));
    this.area = drawing("path", { class: "area" });
    this.picture = drawing(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title },
      this.area,
      ...this.paths,
    );
    this.values = series.map(({ kind }) => element("span", { class: `value ${kind}` }));
    this.top = element("span", { class: "top muted" });
    this.figure = element(
      "figure",
      {},
      element("figcaption", {}, title),
      element("p", { class: "values" }, ...this.values),
      element("div", { class: "plot" }, this.picture, this.top),
      element("p", { class: "axis muted", "aria-hidden": "true" }, element("span", {}, "5 min ago"), element("span", {}, "now")),
    );
  }

  /** Draw points { at, ... }, oldest first, as seen at `now` (seconds). */
  draw(points, now) {
    const most = ceiling(Math.max(this.least, ...points.flatMap((point) => this.series.map(({ value }) => value(point) ?? 0))));
    const place = (point, value) => [WIDTH * (1 - (now - point.at) / SPAN_S), HEIGHT - 2 - (HEIGHT - 4) * (value / most)];
    const last = points.at(-1);
    const words = this.series.map(({ name, value }, index) => {
      const runs = split(points, value);
      this.paths[index].setAttribute("d", runs.map((run) => line(run.map((point) => place(point, value(point))))).join(""));
      if (index === 0) this.area.setAttribute("d", runs.map((run) => area(run.map((point) => place(point, value(point))))).join(""));
      const newest = last ? (value(last) ?? null) : null;
      this.values[index].replaceChildren(element("b", {}, this.shown(newest)), ` ${name}`);
      return `${this.shown(newest)} ${name}`;
    });
    this.top.textContent = this.shown(most).replace(/\.0+$/, "");
    this.picture.setAttribute("aria-label", `${this.title} over the last five minutes; now ${words.join(", ")}`);
  }
}

/** Stretches without unknown values and without long silences. */
function split(points, value) {
  const runs = [];
  let before = null;
  for (const point of points) {
    const known = value(point) !== null && value(point) !== undefined;
    if (known && before && point.at - before.at < GAP_S) runs.at(-1).push(point);
    else if (known) runs.push([point]);
    before = known ? point : null;
  }
  return runs;
}

function line(places) {
  return places.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

function area(places) {
  const [first, last] = [places[0][0].toFixed(1), places.at(-1)[0].toFixed(1)];
  return `${line(places)}L${last} ${HEIGHT}L${first} ${HEIGHT}Z`;
}

/** The next round number: 1, 2 or 5 times a power of ten. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value - 1e-9);
}
