// Buttons that copy text.

import { make } from "./dom.js";
import { setIcon } from "./icons.js";

/** A button that copies what `text()` returns, and says that it did. */
export function copyButton(label, text) {
  const button = make("button", { class: "icon-button small", type: "button", "aria-label": label, title: label });
  setIcon(button, "copy");
  button.addEventListener("click", async () => {
    const done = await copy(text());
    setIcon(button, done ? "check" : "warning");
    button.setAttribute("aria-label", done ? "Copied" : "The browser does not allow copying");
    setTimeout(() => {
      setIcon(button, "copy");
      button.setAttribute("aria-label", label);
    }, 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelection(text);
  }
}

/** Pages that did not come over HTTPS or from this machine have no clipboard, but may copy what is selected. */
function copySelection(text) {
  const field = make("textarea", { class: "visually-hidden", readonly: true });
  const focused = document.activeElement;
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return done;
}
