// Conversations as files.

import { make } from "./dom.js";
import { parse } from "./store.js";
import { shownPath, titleOf } from "./tree.js";

/** Save conversations as one JSON file, which `readExport` reads. */
export function exportJson(conversations, name) {
  const leaveOut = (key, value) => (key === "tokens" || key === "rates" ? undefined : value);
  download(`${fileName(name)}.json`, "application/json", JSON.stringify({ pyturbo: 1, conversations }, leaveOut, 1));
}

/** Save the branch that is shown as Markdown. */
export function exportMarkdown(conversation) {
  download(`${fileName(titleOf(conversation))}.md`, "text/markdown", toMarkdown(conversation));
}

/** The branch that is shown, as Markdown. */
export function toMarkdown(conversation) {
  const parts = shownPath(conversation).map(({ role, content }) => `## ${role === "user" ? "You" : "Reply"}\n\n${content.trim()}\n`);
  return [`# ${titleOf(conversation)}\n`, ...parts].join("\n");
}

/** The conversations in the text of an exported file; null where it is none. */
export function readExport(text) {
  try {
    const found = JSON.parse(text).conversations.map((each) => parse(JSON.stringify(each)));
    return found.every(Boolean) ? found : null;
  } catch {
    return null;
  }
}

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function fileName(title) {
  return title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "conversation";
}
