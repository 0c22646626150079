// The tokens of a reply, coloured by how probable each was, and a card with the alternatives of one.
//
// token: {name, text, logprob, others: [{name, logprob}]}, where `text` is what it adds to the reply

import { byId, make } from "./dom.js";
import { percent } from "./numbers.js";

/**
 * The tokens that a chunk's `logprobs` tell about. A character may take several tokens: `decoder`, a TextDecoder
 * that is the same for a whole reply, gives it to the last of them.
 */
export function tokensOf(logprobs, decoder) {
  return (logprobs?.content ?? []).map(({ token, bytes, logprob, top_logprobs }) => ({
    name: token,
    text: bytes ? decoder.decode(Uint8Array.from(bytes), { stream: true }) : token,
    logprob,
    others: (top_logprobs ?? []).map((other) => ({ name: other.token, logprob: other.logprob })),
  }));
}

/** Show tokens in an element; those that it has already stay. One of them is reached by Tab, the others by arrows. */
export function showTokens(element, tokens) {
  while (element.children.length > tokens.length) element.lastElementChild.remove();
  for (const token of tokens.slice(element.children.length)) {
    const chance = Math.exp(token.logprob);
    const first = element.children.length === 0;
    const span = make("span", { class: "token", tabindex: first ? "0" : "-1", "aria-describedby": "token-card" }, token.text);
    span.style.setProperty("--chance", chance.toFixed(4));
    cards.set(span, token);
    element.append(span);
  }
}

const cards = new WeakMap();

/** Show the card for the token under the pointer, or the one that has the focus. */
export function watchTokens() {
  const over = (event) => event.target.closest?.(".token");
  document.addEventListener("mouseover", (event) => (over(event) ? showCard(over(event)) : hideCard()));
  document.addEventListener("focusin", (event) => (over(event) ? showCard(over(event)) : hideCard()));
  document.addEventListener("scroll", hideCard, { capture: true, passive: true });
  document.addEventListener("keydown", (event) => {
    const token = over(event);
    if (!token) return;
    const next = { ArrowRight: token.nextElementSibling, ArrowLeft: token.previousElementSibling }[event.key];
    if (next) {
      event.preventDefault();
      token.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
  });
}

function showCard(span) {
  const token = cards.get(span);
  const card = byId("token-card");
  const known = token.others.some((other) => other.name === token.name);
  const rows = (known ? token.others : [...token.others, token]).toSorted((a, b) => b.logprob - a.logprob);
  card.replaceChildren(...rows.map((row) => cardRow(row, row.name === token.name)));
  card.hidden = false;
  place(card, span.getClientRects()[0] ?? span.getBoundingClientRect());
}

function cardRow({ name, logprob }, chosen) {
  const chance = Math.exp(logprob);
  const bar = make("span", { class: "bar" });
  bar.style.setProperty("--chance", chance.toFixed(4));
  return make(
    "div",
    { class: chosen ? "row chosen" : "row" },
    make("span", { class: "text" }, visible(name)),
    bar,
    make("span", { class: "chance" }, percent(chance)),
  );
}

/** Below the token, or above it where there is no room, and never beyond the window. */
function place(card, token) {
  const { width, height } = card.getBoundingClientRect();
  const below = token.bottom + height + 12 < innerHeight;
  const left = Math.max(8, Math.min(token.left, innerWidth - width - 8));
  card.style.setProperty("left", `${left}px`);
  card.style.setProperty("top", `${below ? token.bottom + 6 : token.top - height - 6}px`);
}

function hideCard() {
  byId("token-card").hidden = true;
}

function visible(text) {
  return text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
}
