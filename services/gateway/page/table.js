// Tables that become cards where the screen is narrow. Roles are spelled out, as `display: block` takes them away.

import { element } from "./element.js";
import { UNKNOWN } from "./numbers.js";

/** Columns are [title, class or null]; rows are lists of cells, each text or a node. */
export function table(caption, columns, rows) {
  const titles = columns.map(([title, kind]) => element("th", { scope: "col", role: "columnheader", class: kind }, title));
  return element(
    "table",
    { role: "table" },
    element("caption", {}, caption),
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...titles)),
    element("tbody", { role: "rowgroup" }, ...rows.map((cells) => row(columns, cells))),
  );
}

function row(columns, cells) {
  const inside = cells.map((cell, index) => {
    const [title, kind] = columns[index];
    const [name, role] = index === 0 ? ["th", "rowheader"] : ["td", "cell"];
    const attributes = { role, scope: index === 0 ? "row" : null, "data-title": title };
    const kinds = [kind, cell === UNKNOWN ? "unknown" : null].filter(Boolean).join(" ") || null;
    return element(name, { ...attributes, class: kinds }, element("div", {}, cell));
  });
  return element("tr", { role: "row" }, ...inside);
}

/** A cell's value with a quieter line below it. */
export function twoLines(first, second) {
  return element("span", {}, first, element("small", { class: "muted" }, second));
}
