// The messages that are shown, and where the reader is in them.

import { announce } from "./announcer.js";
import { byId } from "./dom.js";
import { messageView } from "./message.js";
import { current, watch } from "./session.js";
import { shownPath } from "./tree.js";

const NEAR = 80; // px from the end within which the end is followed

let views = new Map(); // by the id of the message
let shown = null; // the id of the conversation whose messages stand in the page
let follows = true;
const changed = new Set();

/** Show the conversation that is open, and each reply as it grows. */
export function showThread() {
  const scroll = byId("thread-scroll");
  scroll.addEventListener("scroll", () => {
    follows = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR;
    byId("to-end").hidden = follows;
  }, { passive: true });
  byId("to-end").addEventListener("click", toEnd);
  watch("opened", draw);
  watch("reply", (message) => {
    if (!changed.size) requestAnimationFrame(grow);
    changed.add(message);
  });
  draw();
}

function draw() {
  const path = shownPath(current());
  const same = shown === current().id;
  const next = new Map(path.map((message) => [message.id, (same && views.get(message.id)) || messageView(message)]));
  const elements = [...next.values()].map(({ element }) => element);
  const thread = byId("thread");
  for (const child of [...thread.children]) if (!elements.includes(child)) child.remove();
  elements.forEach((element, place) => thread.children[place] !== element && thread.insertBefore(element, thread.children[place] ?? null));
  const grew = next.size !== views.size || !same;
  views = next;
  shown = current().id;
  for (const { update } of views.values()) update();
  byId("welcome").hidden = path.length > 0;
  if (grew) toEnd();
}

function grow() {
  for (const message of changed) {
    const view = views.get(message.id);
    if (!view) continue;
    view.update();
    if (message.state === "writing" && !message.content && !message.thoughts) announce("The reply is being written.");
    if (message.state === "done" || message.state === "length") announce(message.content);
  }
  changed.clear();
  if (follows) toEnd();
}

function toEnd() {
  const scroll = byId("thread-scroll");
  scroll.scrollTop = scroll.scrollHeight;
  follows = true;
  byId("to-end").hidden = true;
}
