// Puts the parts of the page together, and has the keys that count everywhere.

import { startComposer, toComposer } from "./composer.js";
import { byId } from "./dom.js";
import { closeDrawer, startDrawer } from "./drawer.js";
import { closeFigures, startFigures } from "./figures.js";
import { drawIcons } from "./icons.js";
import { showModels, startModels } from "./models.js";
import { notice } from "./notice.js";
import { current, isWriting, openConversation, stop, watch } from "./session.js";
import { startSettings } from "./settings-dialog.js";
import { choose, settings, watchSettings } from "./settings.js";
import { showThread } from "./thread.js";
import { watchTokens } from "./tokens.js";

const isApple = /Mac|iPhone|iPad/.test(navigator.platform);

drawIcons();
byId("new-shortcut").textContent = isApple ? "⌘ K" : "Ctrl K";
startDrawer();
showThread();
startComposer();
startFigures();
watchTokens();

let usedKey = settings.key;
startSettings(() => {
  if (usedKey !== settings.key) showModels();
  usedKey = settings.key;
});
byId("probabilities").addEventListener("click", () => choose({ logprobs: !settings.logprobs }));
watchSettings(({ logprobs }) => byId("probabilities").setAttribute("aria-pressed", String(logprobs)));
startModels();

// The address names the conversation, so that going back and reloading work as anywhere.
const openFromAddress = () => openConversation(location.hash.slice(1));
addEventListener("hashchange", () => location.hash.slice(1) !== current().id && openFromAddress());
watch("opened", () => {
  const { id, messages } = current();
  const address = Object.keys(messages).length ? `#${id}` : location.pathname + location.search;
  if (location.hash === address || (!location.hash && !address.startsWith("#"))) return;
  history[location.hash ? "pushState" : "replaceState"](null, "", address);
});
watch("trouble", (words) => notice(words, { lasting: true }));
openFromAddress();

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  toComposer();
});
byId("new-conversation").addEventListener("click", startNew);
addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() === "k" && (isApple ? event.metaKey : event.ctrlKey) && !event.shiftKey && !event.altKey) {
    event.preventDefault();
    startNew();
  } else if (event.key === "Escape" && !byId("settings").open && !document.querySelector(".menu")) {
    if (!closeDrawer() && isWriting()) stop();
    else if (!isWriting()) closeFigures();
  }
});

function startNew() {
  byId("settings").close();
  openConversation(null);
  closeDrawer();
  toComposer();
}
