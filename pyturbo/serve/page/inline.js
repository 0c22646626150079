// Markdown within a line, as nodes: code, bold, italic, struck, links. Everything else is text, HTML too.

import { make } from "./dom.js";

const DEEPEST = 12;
const MARKS = { "***": ["strong", "em"], "**": ["strong"], "__": ["strong"], "~~": ["s"], "*": ["em"], _: ["em"] };
const SPECIAL = /[\\`*_~[!<\n]|https?:\/\//g;
const BARE_LINK = /^https?:\/\/[^\s<>"`]*[^\s<>"`.,;:!?'*_~)\]]/;
const ESCAPED = /[!-/:-@[-`{-~]/;

/** The nodes of a text of one paragraph. */
export function inlineNodes(text, depth = 0) {
  const nodes = [];
  let plain = "";
  const flush = () => {
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
  };
  const missing = new Set(); // what has no end in the rest of the text, so that it is searched for once
  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    plain += text.slice(at, next);
    if (next === text.length) break;
    const found = span(text, next, depth, missing);
    if (found) {
      if (typeof found.node === "string") plain += found.node;
      else flush(), nodes.push(found.node);
      at = found.end;
    } else {
      plain += text[next];
      at = next + 1;
    }
  }
  flush();
  return nodes;
}

/** The address if a browser may open it: http or https and nothing else. */
export function safeAddress(text) {
  try {
    const address = new URL(text);
    return ["http:", "https:"].includes(address.protocol) ? address.href : null;
  } catch {
    return null;
  }
}

function span(text, at, depth, missing) {
  switch (text[at]) {
    case "\\":
      return escape(text, at);
    case "\n":
      return { node: make("br"), end: at + 1 };
    case "`":
      return code(text, at, missing);
    case "<":
      return angleLink(text, at);
    case "h":
      return bareLink(text, at);
    case "!":
      return text[at + 1] === "[" ? link(text, at + 1, depth, missing) : null;
    case "[":
      return link(text, at, depth, missing);
    default:
      return emphasis(text, at, depth, missing);
  }
}

function escape(text, at) {
  const next = text[at + 1] ?? "";
  if (next === "\n") return { node: make("br"), end: at + 2 };
  return ESCAPED.test(next) ? { node: next, end: at + 2 } : null;
}

function code(text, at, missing) {
  const end = endOfCode(text, at, missing);
  if (end === null) {
    const ticks = runLength(text, at);
    return { node: text.slice(at, at + ticks), end: at + ticks };
  }
  const ticks = runLength(text, at);
  const inside = text.slice(at + ticks, end - ticks).replaceAll("\n", " ");
  const padded = /^ .*[^ ].* $/.test(inside);
  return { node: make("code", {}, padded ? inside.slice(1, -1) : inside), end };
}

/** Where the code that begins here ends, or null where nothing ends it. */
function endOfCode(text, at, missing) {
  const ticks = runLength(text, at);
  if (missing.has(ticks)) return null;
  for (let from = at + ticks; ; ) {
    const next = text.indexOf("`", from);
    if (next < 0) {
      missing.add(ticks);
      return null;
    }
    const length = runLength(text, next);
    if (length === ticks) return next + length;
    from = next + length;
  }
}

function angleLink(text, at) {
  const match = text.slice(at, at + 2048).match(/^<(https?:\/\/[^\s<>]+)>/);
  const address = match && safeAddress(match[1]);
  return address ? { node: anchor(address, [match[1]]), end: at + match[0].length } : null;
}

function bareLink(text, at) {
  const match = text.slice(at, at + 2048).match(BARE_LINK);
  const address = match && safeAddress(match[0]);
  return address ? { node: anchor(address, [match[0]]), end: at + match[0].length } : null;
}

/** `[words](address)`. Images are links too: the page loads nothing from elsewhere. */
function link(text, at, depth, missing) {
  if (depth >= DEEPEST || missing.has("](")) return null;
  const middle = text.indexOf("](", at);
  if (middle < 0) {
    missing.add("](");
    return null;
  }
  const words = text.slice(at + 1, middle);
  const target = text.slice(middle + 2, middle + 2050).match(/^<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\)/);
  const address = target && !words.includes("[") && safeAddress(target[1]);
  if (!address) return null;
  return { node: anchor(address, inlineNodes(words, depth + 1)), end: middle + 2 + target[0].length };
}

function anchor(address, children) {
  return make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

function emphasis(text, at, depth, missing) {
  const run = runLength(text, at);
  const mark = text.slice(at, at + Math.min(run, 3));
  const literal = { node: text.slice(at, at + run), end: at + run };
  const after = text[at + run] ?? " ";
  const before = text[at - 1] ?? " ";
  const opens = run <= 3 && MARKS[mark] && /\S/.test(after) && !(mark[0] === "_" && /[\p{L}\p{N}]/u.test(before));
  const end = opens && depth < DEEPEST && !missing.has(mark) ? endOfEmphasis(text, at + run, mark) : null;
  if (end === null) {
    if (opens) missing.add(mark);
    return literal;
  }
  const children = inlineNodes(text.slice(at + run, end), depth + 1);
  const node = MARKS[mark].reduceRight((inside, tag) => [make(tag, {}, ...inside)], children)[0];
  return { node, end: end + run };
}

/** Where the mark that ends an emphasis begins, or null. Code and escaped signs within are passed over. */
function endOfEmphasis(text, from, mark) {
  const missing = new Set();
  for (let at = from; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === "`") at = (endOfCode(text, at, missing) ?? at + runLength(text, at)) - 1;
    else if (text[at] === mark[0]) {
      const run = runLength(text, at);
      const fits = mark.length === 1 ? run !== 2 : run >= mark.length;
      const after = text[at + run] ?? " ";
      const closes = /\S/.test(text[at - 1]) && !(mark[0] === "_" && /[\p{L}\p{N}]/u.test(after));
      if (fits && closes && at > from) return at + run - mark.length;
      at += run - 1;
    }
  }
  return null;
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) end++;
  return end - at;
}
