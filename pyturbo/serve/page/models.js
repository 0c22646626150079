// The models that the server has, and the choice of one.

import { fetchModels } from "./api.js";
import { byId, make } from "./dom.js";
import { hideNotice, notice } from "./notice.js";
import { openSettings } from "./settings-dialog.js";
import { choose, settings } from "./settings.js";

/** Ask the server for its models and show them. What was chosen stays chosen if it is still there. */
export async function showModels() {
  const field = byId("model");
  try {
    const names = await fetchModels();
    field.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    if (!names.includes(settings.model)) choose({ model: names[0] ?? "" });
    field.value = settings.model;
    hideNotice();
  } catch (error) {
    field.replaceChildren(make("option", { value: settings.model }, settings.model || "no model"));
    const action = error.kind === "key" ? ["Enter a key", () => openSettings("key")] : ["Try again", showModels];
    notice(error.message, { action, lasting: true });
  }
}

/** Let a model be chosen. */
export function startModels() {
  byId("model").addEventListener("change", ({ target }) => choose({ model: target.value }));
  return showModels();
}
