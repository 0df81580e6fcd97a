// Elements. Text only ever becomes text nodes: what models and processes say is never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (null: left out) and children, which are nodes or text. */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for parts of drawings. */
export function drawing(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** The element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}
