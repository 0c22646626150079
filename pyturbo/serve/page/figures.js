// The panel with figures: of the last reply, and of the server while the panel is open.

import { fetchMetrics } from "./api.js";
import { byId, make } from "./dom.js";
import { metricRows, readMetrics } from "./metrics.js";
import { count, duration, percent, speed } from "./numbers.js";
import { current, watch } from "./session.js";
import { showCurve } from "./sparkline.js";
import { shownPath } from "./tree.js";

const EVERY = 2000; // ms between two questions to the server

let timer = 0;

/** Let the panel be opened, and keep it current while it is. */
export function startFigures() {
  byId("figures-open").addEventListener("click", () => setOpen(byId("figures").hidden));
  byId("figures-close").addEventListener("click", () => closeFigures());
  watch("opened", showReply);
  watch("reply", showReply);
}

/** Close the panel; whether it was open. */
export function closeFigures() {
  const wasOpen = !byId("figures").hidden;
  if (wasOpen) setOpen(false);
  return wasOpen;
}

function setOpen(open) {
  byId("figures").hidden = !open;
  byId("figures-open").setAttribute("aria-expanded", String(open));
  clearTimeout(timer);
  if (open) {
    showReply();
    ask();
    byId("figures-close").focus();
  } else {
    byId("figures-open").focus();
  }
}

async function ask() {
  if (!document.hidden) await showServer();
  if (!byId("figures").hidden) timer = setTimeout(ask, EVERY);
}

async function showServer() {
  try {
    const rows = metricRows(readMetrics(await fetchMetrics()));
    showRows(byId("server-figures"), rows);
    byId("server-state").textContent = rows.length ? "" : "The server has no figures.";
  } catch (error) {
    byId("server-state").textContent = error.message;
  }
}

function showReply() {
  if (byId("figures").hidden) return;
  const reply = shownPath(current()).findLast(({ role }) => role === "assistant");
  const now = reply?.state === "writing" ? reply.rate : reply?.figures?.speed;
  byId("speed").textContent = now ? speed(now) : "–";
  showCurve(byId("sparkline"), reply?.rates ?? [], "Tokens per second during the reply");
  showRows(byId("reply-figures"), replyRows(reply?.figures));
}

function replyRows(figures) {
  if (!figures) return [];
  const rows = [
    ["First token after", figures.wait === null ? null : duration(figures.wait)],
    ["Tokens", count(figures.tokens)],
    ["Writing", figures.seconds ? duration(figures.seconds) : null],
    ["Prompt", figures.prompt === null ? null : `${count(figures.prompt)} tokens`],
    ["Reading the prompt", figures.reading === null ? null : duration(figures.reading)],
    ["Cached", figures.cached === null ? null : cached(figures)],
  ];
  return rows.filter(([, value]) => value !== null);
}

function cached({ cached: tokens, prompt }) {
  return prompt ? `${count(tokens)} tokens, ${percent(tokens / prompt)}` : `${count(tokens)} tokens`;
}

function showRows(element, rows) {
  element.replaceChildren(...rows.map(([words, value]) => make("div", {}, make("dt", {}, words), make("dd", {}, value))));
}
