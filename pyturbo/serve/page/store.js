// Conversations in localStorage, one entry each, so that two windows do not overwrite each other's.

const PREFIX = "pyturbo/conversation/";
const loaded = new Map();

/** All conversations, the one that changed last first. */
export function conversations() {
  const ids = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
  const found = ids.map((key) => conversation(key.slice(PREFIX.length))).filter(Boolean);
  return found.sort((a, b) => b.changed - a.changed);
}

/** The conversation with this id, always the same object, or null. */
export function conversation(id) {
  if (!loaded.has(id)) {
    const found = parse(localStorage.getItem(PREFIX + id));
    if (!found) return null;
    loaded.set(id, found);
  }
  return loaded.get(id);
}

/** Whether a conversation is kept, maybe with another id. */
export function isKept(other) {
  const text = textOf(other);
  return conversations().some((kept) => textOf({ ...kept, id: other.id }) === text);
}

/** Keep a conversation. Throws where the browser has no room for it. */
export function keep(conversation) {
  loaded.set(conversation.id, conversation);
  localStorage.setItem(PREFIX + conversation.id, textOf(conversation));
}

/** Delete a conversation. */
export function forget(id) {
  loaded.delete(id);
  localStorage.removeItem(PREFIX + id);
}

/** Call a function with the id of each conversation that another window changes. */
export function watchOthers(listener) {
  addEventListener("storage", ({ key }) => {
    if (!key?.startsWith(PREFIX)) return;
    const id = key.slice(PREFIX.length);
    loaded.delete(id);
    listener(id);
  });
}

/** Read a conversation from its JSON text; null where it is none. */
export function parse(text) {
  try {
    const found = JSON.parse(text);
    return isConversation(found) ? found : null;
  } catch {
    return null;
  }
}

/** Whether this is a tree: every child knows its parent, and what is shown is a child. */
function isConversation(found) {
  const messages = found?.messages;
  if (typeof found?.id !== "string" || !messages || typeof messages !== "object") return false;
  const isWhole = (id, { children, shown } = {}) =>
    Array.isArray(children) &&
    children.every((child) => messages[child]?.parent === id && messages[child].id === child) &&
    (shown === null || children.includes(shown));
  return (
    isWhole(null, found.first ?? {}) &&
    Object.values(messages).every((message) => isMessage(message) && isWhole(message.id, message))
  );
}

function isMessage(message) {
  const isText = (value) => value === undefined || typeof value === "string";
  return ["user", "assistant"].includes(message?.role) && typeof message.content === "string" && isText(message.thoughts);
}

/** A conversation as JSON. Probabilities take hundreds of bytes a token: they are there until the page is left. */
function textOf(conversation) {
  return JSON.stringify(conversation, (name, value) => (name === "tokens" || name === "rates" ? undefined : value));
}
