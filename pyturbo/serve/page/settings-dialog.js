// The dialog with the settings. A change counts at once.

import { byId } from "./dom.js";
import { choose, settings } from "./settings.js";

/** Let the settings be changed. `closed` is called after the dialog. */
export function startSettings(closed) {
  const form = byId("settings-form");
  const dialog = byId("settings");
  byId("settings-open").addEventListener("click", () => openSettings());
  byId("settings-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", closed);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close();
  });
  form.addEventListener("input", ({ target }) => {
    if (target.checkValidity()) choose({ [target.name]: target.type === "checkbox" ? target.checked : target.value });
  });
}

/** Open the settings, at the field of this name if there is one. */
export function openSettings(name = null) {
  const form = byId("settings-form");
  for (const field of form.elements) {
    if (field.type === "checkbox") field.checked = settings[field.name];
    else if (field.type === "radio") field.checked = settings[field.name] === field.value;
    else if (field.name) field.value = settings[field.name];
  }
  byId("settings").showModal();
  if (name) form.elements[name].focus();
}
