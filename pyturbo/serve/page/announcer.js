// What screen readers are told.

import { byId } from "./dom.js";

/** Have a text read aloud, once. */
export function announce(text) {
  const element = byId("announcer");
  if (element.textContent !== text) element.textContent = text;
}
