// A small curve.

import { draw } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 48;

/** Draw values from zero up as a curve with the area below it; fewer than two leave the element empty. */
export function showCurve(element, values, label) {
  if (values.length < 2) return element.replaceChildren();
  const largest = Math.max(...values, 1e-9);
  const points = values.map((value, place) => {
    const x = (WIDTH * place) / (values.length - 1);
    return `${x.toFixed(1)} ${(HEIGHT - 3 - ((HEIGHT - 8) * value) / largest).toFixed(1)}`;
  });
  const line = `M${points.join("L")}`;
  return element.replaceChildren(
    draw(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      draw("path", { class: "area", d: `${line}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z` }),
      draw("path", { class: "line", d: line }),
    ),
  );
}
