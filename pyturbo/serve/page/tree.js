// A conversation is a tree of messages. A message that is edited or made again gets a sibling; each message
// remembers which of its children is shown.
//
// conversation: {id, title, created, changed, messages: {id: message}, first: {children, shown}}
// message: {id, parent, role, content, thoughts, children, shown, model, state, figures}
// state of a reply: "writing", "done", "length" (its longest length), "stopped", "failed"

/** A conversation without messages. */
export function newConversation() {
  const now = Date.now();
  const first = { children: [], shown: null };
  return { id: newId(), title: "", created: now, changed: now, messages: {}, first };
}

/** Add a message after another one, or at the beginning after null, and show it. */
export function addMessage(conversation, parent, role, content = "") {
  const message = { id: newId(), parent, role, content, children: [], shown: null };
  conversation.messages[message.id] = message;
  const before = parentOf(conversation, message);
  before.children.push(message.id);
  before.shown = message.id;
  conversation.changed = Date.now();
  return message;
}

/** The messages that are shown, from the first on. */
export function shownPath(conversation) {
  const path = [];
  let id = conversation.first.shown;
  while (id !== null) {
    const message = conversation.messages[id];
    path.push(message);
    id = message.shown;
  }
  return path;
}

/** The messages up to one, and that one. */
export function pathTo(conversation, message) {
  const path = [];
  for (let at = message; at; at = conversation.messages[at.parent]) path.unshift(at);
  return path;
}

/** The ids of a message and its siblings, oldest first. */
export function siblings(conversation, message) {
  return parentOf(conversation, message).children;
}

/** Show the sibling that is `step` further, if there is one. */
export function showSibling(conversation, message, step) {
  const all = siblings(conversation, message);
  const other = all[all.indexOf(message.id) + step];
  if (other) parentOf(conversation, message).shown = other;
}

/** Remove a message that nothing follows; the sibling before it is shown. */
export function removeMessage(conversation, message) {
  const before = parentOf(conversation, message);
  const place = before.children.indexOf(message.id);
  before.children.splice(place, 1);
  before.shown = before.children[Math.max(0, place - 1)] ?? null;
  delete conversation.messages[message.id];
}

/** The title to show: what the user named it, or how its first message begins. */
export function titleOf(conversation) {
  const begin = conversation.messages[conversation.first.shown]?.content.trim().split("\n")[0] ?? "";
  const short = begin.length > 60 ? `${begin.slice(0, 57).trimEnd()}…` : begin;
  return conversation.title || short || "New conversation";
}

function parentOf(conversation, message) {
  return conversation.messages[message.parent] ?? conversation.first;
}

/** An id of a conversation or a message. */
export function newId() {
  // crypto.randomUUID is there only in secure contexts, and a server in the local network is none.
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
