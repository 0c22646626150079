// A line at the foot of the window, with something to do about it.

import { byId, make } from "./dom.js";

let timer = 0;

/** Show a notice. `action` is `[words, function]`; a notice with `lasting` stays until it is closed. */
export function notice(words, { action = null, lasting = false } = {}) {
  const element = byId("notice");
  const close = () => {
    element.hidden = true;
  };
  const buttons = action ? [make("button", { class: "text-button", type: "button", onclick: () => (close(), action[1]()) }, action[0])] : [];
  if (lasting) buttons.push(make("button", { class: "text-button", type: "button", onclick: close }, "Close"));
  element.replaceChildren(make("span", {}, words), ...buttons);
  element.hidden = false;
  clearTimeout(timer);
  if (!lasting) timer = setTimeout(close, 7000);
}

/** Take the notice away. */
export function hideNotice() {
  byId("notice").hidden = true;
}
