// The conversation that is open, and the replies that are being written. The rest of the page watches it.

import { writeReply } from "./reply.js";
import * as store from "./store.js";
import { addMessage, newConversation, newId, removeMessage, shownPath, showSibling } from "./tree.js";

const SAVE_EVERY = 1000; // ms, while a reply is written

const listeners = { opened: [], reply: [], list: [], trouble: [] };
const running = new Map(); // AbortController by the id of the conversation
let open = newConversation();

/**
 * Call a function when something happens. "opened": other messages are shown; "reply": one grew, which is the
 * argument; "list": the list of conversations is another; "trouble": the argument says what.
 */
export function watch(event, listener) {
  listeners[event].push(listener);
}

/** The conversation that is open. */
export function current() {
  return open;
}

/** Whether a reply is being written in the conversation that is open. */
export function isWriting() {
  return running.has(open.id);
}

/** Open a conversation, or a new one where there is none with this id. */
export function openConversation(id) {
  open = store.conversation(id) ?? newConversation();
  if (!running.has(open.id)) cutOff(open);
  tell("opened");
}

/** Say something at the end of the conversation that is open. */
export function say(text) {
  answer(addMessage(open, shownPath(open).at(-1)?.id ?? null, "user", text).id);
}

/** Say something else in place of a message: both stay, as branches. */
export function sayInstead(message, text) {
  answer(addMessage(open, message.parent, "user", text).id);
}

/** Write a reply again: both stay, as branches, unless the first one is empty and nothing follows it. */
export function replyAgain(message) {
  const { parent } = message;
  if (!message.content && !message.thoughts && !message.children.length) removeMessage(open, message);
  answer(parent);
}

/** Show the branch before (-1) or after (1) that of a message. */
export function turnTo(message, step) {
  showSibling(open, message, step);
  save(open);
  tell("opened");
}

/** Stop the reply that is being written in the conversation that is open. */
export function stop() {
  running.get(open.id)?.abort();
}

/** Name a conversation; "" names it after its first message again. */
export function rename(conversation, title) {
  conversation.title = title.trim();
  save(conversation);
  tell("list");
}

/** Delete a conversation. `restore` brings it back. */
export function remove(conversation) {
  running.get(conversation.id)?.abort();
  store.forget(conversation.id);
  tell("list");
  if (conversation === open) openConversation(null);
}

/** Keep a conversation that was deleted or comes from a file. If its id is that of a different one, it gets a new id. */
export function restore(conversation) {
  if (!store.isKept(conversation)) {
    if (store.conversation(conversation.id)) conversation.id = newId();
    save(conversation);
  }
  tell("list");
}

async function answer(parent) {
  const conversation = open;
  const message = addMessage(conversation, parent, "assistant");
  const controller = new AbortController();
  running.get(conversation.id)?.abort();
  running.set(conversation.id, controller);
  let saved = 0;
  const changed = () => {
    if (performance.now() - saved > SAVE_EVERY && !controller.signal.aborted) {
      saved = performance.now();
      save(conversation);
    }
    tell("reply", message);
  };
  const written = writeReply(conversation, message, controller.signal, changed);
  tell("list");
  tell("opened");
  await written;
  if (running.get(conversation.id) === controller) running.delete(conversation.id);
  if (conversation === open || store.conversation(conversation.id)) save(conversation);
  tell("list");
  tell("reply", message);
}

function save(conversation) {
  try {
    store.keep(conversation);
  } catch {
    tell("trouble", "The browser has no room for more: this conversation is lost when the page is left. Export or delete some.");
  }
}

/** A reply that was being written when the page was left is one that was stopped. */
function cutOff(conversation) {
  for (const message of Object.values(conversation.messages)) {
    if (message.state === "writing") message.state = "stopped";
  }
}

function tell(event, argument) {
  for (const listener of listeners[event]) listener(argument);
}

store.watchOthers((id) => {
  if (id === open.id && !isWriting() && store.conversation(id)) openConversation(id);
  tell("list");
});
addEventListener("pagehide", () => isWriting() && save(open));
