// Icons as strokes on a grid of 24 by 24.

import { draw } from "./dom.js";

const STROKES = {
  chance: "M5 20V12M10 20V4M15 20v-6M20 20V9",
  check: "M5 12.5l4.5 4.5L19 7.5",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  down: "M12 5v14M6 13l6 6 6-6",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  edit: "M4 20l1-4.5L16 4.5 19.5 8 8.5 19zM13.5 7l3.5 3.5",
  left: "M14.5 6l-6 6 6 6",
  markdown: "M4 18V7l4 5 4-5v11M17.5 7v11M14.5 15l3 3 3-3",
  menu: "M4 7h16M4 12h11M4 17h16",
  more: "M5.5 11.5v1M12 11.5v1M18.5 11.5v1",
  plus: "M12 5v14M5 12h14",
  pulse: "M3 12h4l3-8 4 16 3-8h4",
  retry: "M19.5 12a7.5 7.5 0 1 1-2.3-5.4L20 9M20 4v5h-5",
  right: "M9.5 6l6 6-6 6",
  send: "M12 19V5M6 11l6-6 6 6",
  sliders: "M4 8h9M19 8h1M4 16h1M11 16h9M16 5.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5zM8 13.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5z",
  stop: "M8 8h8v8H8z",
  trash: "M5 7h14M10 4h4M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  warning: "M12 4 2.5 20h19zM12 10v4.5M12 17.2v.1",
};

/** Draw an icon. It is hidden from screen readers: the control that has it has a label. */
export function icon(name) {
  return draw("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, draw("path", { d: STROKES[name] }));
}

/** Show an icon in an element, before its text. */
export function setIcon(element, name) {
  element.querySelector(":scope > .icon")?.remove();
  element.prepend(icon(name));
}

/** Draw the icons that the page names in `data-icon`. */
export function drawIcons() {
  for (const element of document.querySelectorAll("[data-icon]")) setIcon(element, element.dataset.icon);
}
