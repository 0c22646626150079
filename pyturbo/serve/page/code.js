// A block of code: its language, a button that copies it, and its text.

import { copyButton } from "./copy.js";
import { make } from "./dom.js";

/** The element for a block of code in a language, which may be "". */
export function codeBlock(code, language) {
  return make(
    "figure",
    { class: "code" },
    make("figcaption", {}, make("span", { class: "language" }, language || "text"), copyButton("Copy the code", () => code)),
    make("pre", { tabindex: "0" }, make("code", {}, code)),
  );
}
