// The box where messages are written.

import { byId, make } from "./dom.js";
import { setIcon } from "./icons.js";
import { current, isWriting, say, stop, watch } from "./session.js";

const SUGGESTIONS = [
  "Tell me a story about a little fox named Tim",
  "Explain to a child why the sky is blue",
  "Make a table of the planets and their moons",
  "Write a short poem about the first snow",
];

/** Let messages be written, sent and stopped. */
export function startComposer() {
  const field = byId("composer-text");
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (isWriting()) stop();
    else send(field);
  });
  field.addEventListener("input", () => fit(field));
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || writesOnGlass()) return;
    event.preventDefault();
    if (!isWriting()) send(field);
  });
  byId("suggestions").append(...SUGGESTIONS.map((text) => make("button", { type: "button", onclick: () => say(text) }, text)));
  let shown = null;
  watch("opened", () => {
    showState();
    if (shown !== current().id && !writesOnGlass()) field.focus();
    shown = current().id;
  });
  watch("reply", showState);
  showState();
  if (!writesOnGlass()) field.focus();
}

/** Go to the box. */
export function toComposer() {
  byId("composer-text").focus();
}

function send(field) {
  const text = field.value.trim();
  if (!text) return;
  field.value = "";
  fit(field);
  say(text);
}

function showState() {
  const button = byId("send");
  const label = isWriting() ? "Stop" : "Send";
  if (button.getAttribute("aria-label") === label) return;
  button.setAttribute("aria-label", label);
  button.classList.toggle("stops", isWriting());
  setIcon(button, isWriting() ? "stop" : "send");
}

/** As high as the text, up to what the style allows. */
function fit(field) {
  field.style.setProperty("height", "auto");
  field.style.setProperty("height", `${field.scrollHeight}px`);
}

/** On a phone Enter makes a new line: its keyboard has no Shift+Enter. */
function writesOnGlass() {
  return matchMedia("(hover: none) and (pointer: coarse)").matches;
}
