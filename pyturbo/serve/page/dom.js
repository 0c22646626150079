// Elements of the page, made without HTML text.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element. An attribute that begins with "on" is a listener, one that is true stands without a value,
 * and one that is false, null or undefined is left out. Children are nodes or text.
 */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an element of a drawing. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
