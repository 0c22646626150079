// The server's figures, read from Prometheus text.

import { bytes, count, duration, percent } from "./numbers.js";

/** Names in the order in which they are shown, and their words. Others come after them, under their own names. */
const KNOWN = {
  running: "Conversations under way",
  waiting: "Waiting",
  state_bytes: "Memory of conversations",
  prefix_bytes: "Memory of known prompts",
  prompt_tokens_total: "Prompt tokens read",
  cached_tokens_total: "Prompt tokens known already",
  reply_tokens_total: "Reply tokens",
  first_token_seconds: "First token after, mean",
  token_seconds: "A further token, mean",
  queued_seconds: "Wait for a place, mean",
  expert_hits_total: "Experts found in memory",
  expert_misses_total: "Experts read from disk",
  busy_seconds_total: "Time at work",
  steps_total: "Steps",
  requests_total: "Requests",
};

const LINE = /^(pyturbo_\w+)(?:\{.*\})? (\S+)(?: \d+)?$/;

/** Sums over the labels of each metric whose name begins with `pyturbo_`, by the rest of the name. */
export function readMetrics(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const [, name, value] = line.match(LINE) ?? [];
    if (!name || /_(bucket|created)$/.test(name) || !Number.isFinite(Number(value))) continue;
    const short = name.slice("pyturbo_".length);
    sums.set(short, (sums.get(short) ?? 0) + Number(value));
  }
  return sums;
}

/** Rows `[words, value]` of what is there. A histogram is shown by its mean. */
export function metricRows(sums) {
  const values = new Map();
  for (const [name, value] of sums) {
    const [, base, part] = name.match(/^(.*)_(sum|count)$/) ?? [];
    if (!base || !sums.has(`${base}_sum`) || !sums.has(`${base}_count`)) values.set(name, value);
    else if (part === "sum" && sums.get(`${base}_count`)) values.set(base, value / sums.get(`${base}_count`));
  }
  const known = Object.keys(KNOWN).filter((name) => values.has(name));
  const others = [...values.keys()].filter((name) => !(name in KNOWN));
  return [...known, ...others].map((name) => [KNOWN[name] ?? words(name), shown(name, values.get(name))]);
}

function words(name) {
  const plain = name.replace(/_(total|bytes|seconds|ratio)(?=_|$)/g, "").replaceAll("_", " ");
  return plain[0].toUpperCase() + plain.slice(1);
}

function shown(name, value) {
  if (/_bytes(_|$)/.test(name)) return bytes(value);
  if (/_seconds(_|$)/.test(name)) return duration(value);
  if (/_ratio$/.test(name)) return percent(value);
  return Number.isInteger(value) ? count(value) : value.toFixed(2);
}
