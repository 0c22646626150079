// A box that says what went wrong, with a button that tries again.

import { make } from "./dom.js";
import { icon } from "./icons.js";
import { openSettings } from "./settings-dialog.js";

/** The box for a failure `{kind, words, until}`; until then trying again is of no use. */
export function failureBox({ kind, words, until }, again) {
  const retry = make("button", { class: "text-button", type: "button", onclick: again }, "Try again");
  const buttons = [retry];
  if (kind === "key") buttons.unshift(make("button", { class: "text-button", type: "button", onclick: () => openSettings("key") }, "Enter a key"));
  const box = make("div", { class: "failure", role: "alert" }, icon("warning"), make("p", {}, words), make("div", { class: "failure-buttons" }, ...buttons));
  if (until) countDown(retry, until);
  return box;
}

function countDown(button, until) {
  const left = Math.ceil((until - Date.now()) / 1000);
  button.disabled = left > 0;
  button.textContent = left > 0 ? `Try again in ${left} s` : "Try again";
  if (left > 0) setTimeout(() => countDown(button, until), 250);
}
