// Messages as elements. A view is `{element, update()}`.

import { copyButton } from "./copy.js";
import { make } from "./dom.js";
import { failureBox } from "./failure-box.js";
import { setIcon } from "./icons.js";
import { showMarkdown } from "./markdown.js";
import { count, duration, percent, speed } from "./numbers.js";
import { current, replyAgain, sayInstead, turnTo } from "./session.js";
import { settings } from "./settings.js";
import { showTokens } from "./tokens.js";
import { siblings } from "./tree.js";

/** The view of a message. */
export function messageView(message) {
  return message.role === "user" ? userView(message) : replyView(message);
}

function userView(message) {
  const bubble = make("div", { class: "bubble" }, message.content);
  const turns = make("span", { class: "turns" });
  const edit = button("Edit", "edit", () => beginEdit(message, element));
  const tools = make("div", { class: "tools" }, turns, copyButton("Copy the message", () => message.content), edit);
  const element = make("article", { class: "message user", "aria-label": "You" }, bubble, tools);
  return { element, update: () => showTurns(turns, message) };
}

/** Write in place of a message. Its other form stays as a branch. */
function beginEdit(message, element) {
  const field = make("textarea", { class: "edit-field", "aria-label": "Edit the message", rows: "3" });
  const close = () => {
    form.replaceWith(...hidden);
    element.classList.remove("editing");
    element.querySelector(".tools button:last-child").focus();
  };
  const submit = (event) => {
    event.preventDefault();
    const text = field.value.trim();
    close();
    if (text) sayInstead(message, text);
  };
  const form = make(
    "form",
    { class: "edit-form", onsubmit: submit },
    field,
    make(
      "div",
      { class: "edit-buttons" },
      make("button", { class: "text-button", type: "button", onclick: close }, "Cancel"),
      make("button", { class: "text-button primary", type: "submit" }, "Send"),
    ),
  );
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === field) submit(event);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const hidden = [...element.childNodes];
  element.classList.add("editing");
  element.replaceChildren(form);
  field.value = message.content;
  field.focus();
}

function replyView(message) {
  const thoughts = thoughtsView(message);
  const text = make("div", { class: "markdown" });
  const tokens = make("div", { class: "tokens", role: "group", "aria-label": "Tokens; the arrow keys go from one to the next" });
  const waiting = waitingView(message);
  const trouble = make("div");
  const turns = make("span", { class: "turns" });
  const figures = make("span", { class: "reply-figures" });
  let asTokens = settings.logprobs;
  const which = button("Show tokens and their probabilities", "chance", () => {
    asTokens = !asTokens;
    update();
  });
  const copy = copyButton("Copy the reply", () => message.content);
  const again = button("Write the reply again", "retry", () => replyAgain(message));
  const tools = make(
    "div",
    { class: "tools" },
    turns,
    copy,
    again,
    which,
    figures,
  );
  const element = make("article", { class: "message reply", "aria-label": "Reply" }, thoughts.element, waiting.element, text, tokens, trouble, tools);

  function update() {
    const writing = message.state === "writing";
    const hasTokens = Boolean(message.tokens?.length);
    element.classList.toggle("writing", writing);
    element.setAttribute("aria-busy", String(writing));
    thoughts.update();
    waiting.update();
    tokens.hidden = !(asTokens && hasTokens);
    text.hidden = !tokens.hidden;
    if (tokens.hidden) showMarkdown(text, message.content);
    else showTokens(tokens, message.tokens);
    which.hidden = !hasTokens;
    which.setAttribute("aria-pressed", String(!tokens.hidden));
    tools.hidden = writing;
    copy.hidden = !message.content;
    again.hidden = message.state === "failed";
    showTurns(turns, message);
    figures.textContent = figuresLine(message);
    showFailure(message.state === "failed" ? message.failure : null);
  }

  let told = null; // the failure that stands there
  function showFailure(failure) {
    if (told === failure) return;
    told = failure;
    trouble.replaceChildren(...(failure ? [failureBox(failure, () => replyAgain(message))] : []));
  }
  return { element, update };
}

function thoughtsView(message) {
  const words = make("span", {}, "Thoughts");
  const body = make("div", { class: "markdown" });
  const element = make("details", { class: "thoughts" }, make("summary", {}, words), body);
  element.addEventListener("toggle", () => element.open && showMarkdown(body, message.thoughts));
  const update = () => {
    element.hidden = !message.thoughts;
    const thinking = message.state === "writing" && !message.content;
    element.classList.toggle("thinking", thinking);
    words.textContent = thinking ? "Thinking" : "Thoughts";
    if (element.open) showMarkdown(body, message.thoughts);
  };
  return { element, update };
}

/** What is shown until the first token: three dots, and how much of a long prompt was read. */
function waitingView(message) {
  const words = make("span", { class: "muted" });
  const bar = make("progress", { max: "1", value: "0", "aria-label": "Reading the prompt", hidden: true });
  const dots = make("span", { class: "dots", "aria-hidden": "true" }, make("i"), make("i"), make("i"));
  const element = make("div", { class: "waiting" }, dots, words, bar);
  const update = () => {
    element.hidden = message.state !== "writing" || Boolean(message.content || message.thoughts);
    const [read, all] = message.progress ?? [];
    bar.hidden = !all;
    dots.hidden = Boolean(all);
    if (all) bar.value = read / all;
    words.textContent = all ? `Reading the prompt: ${count(read)} of ${count(all)} tokens` : "";
  };
  return { element, update };
}

function showTurns(element, message) {
  const all = siblings(current(), message);
  const place = all.indexOf(message.id);
  if (all.length < 2) return element.replaceChildren();
  const before = button("The version before", "left", () => turnTo(message, -1));
  const after = button("The version after", "right", () => turnTo(message, 1));
  before.disabled = place === 0;
  after.disabled = place === all.length - 1;
  return element.replaceChildren(before, make("span", { class: "turn-count" }, `${place + 1} / ${all.length}`), after);
}

function figuresLine(message) {
  const { figures } = message;
  const parts = [];
  if (message.state === "stopped") parts.push("stopped");
  if (message.state === "length") parts.push("ended at its longest length");
  if (figures?.speed) parts.push(`${speed(figures.speed)} tokens/s`);
  if (figures?.wait != null) parts.push(`first after ${duration(figures.wait)}`);
  if (figures?.tokens) parts.push(`${count(figures.tokens)} ${figures.tokens === 1 ? "token" : "tokens"}`);
  if (figures?.cached && figures.prompt) parts.push(`${percent(figures.cached / figures.prompt)} of the prompt cached`);
  return parts.join(" · ");
}

function button(label, name, onclick) {
  const element = make("button", { class: "icon-button small", type: "button", "aria-label": label, title: label, onclick });
  setIcon(element, name);
  return element;
}
