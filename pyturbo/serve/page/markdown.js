// Markdown as nodes, block by block. The text of a model is never read as HTML.

import { codeBlock } from "./code.js";
import { make } from "./dom.js";
import { inlineNodes } from "./inline.js";

const DEEPEST = 10;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s(.*))?$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const drawn = new WeakMap(); // the source of each block that stands in a page

/**
 * Show Markdown in an element. Blocks whose source did not change stay as they are, so that a reply that grows
 * costs its last block, and what a reader has selected stays selected.
 */
export function showMarkdown(element, text) {
  const blocks = splitBlocks(text.replaceAll("\r\n", "\n").split("\n"));
  blocks.forEach(({ source, build }, place) => {
    const there = element.children[place];
    if (there && drawn.get(there) === source) return;
    const node = build(0);
    drawn.set(node, source);
    if (there) there.replaceWith(node);
    else element.append(node);
  });
  while (element.children.length > blocks.length) element.lastElementChild.remove();
}

/** Cut lines into blocks: `{source, build}`, where `build(depth)` makes the element. */
function splitBlocks(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const [end, build] = blockAt(lines, at);
    blocks.push({ source: lines.slice(at, end).join("\n"), build });
    at = end;
  }
  return blocks;
}

/** Where the block that begins at a line ends, and what builds it. */
function blockAt(lines, at) {
  const line = lines[at];
  if (FENCE.test(line)) return fenced(lines, at);
  if (HEADING.test(line)) return [at + 1, () => heading(line)];
  if (RULE.test(line)) return [at + 1, () => make("hr")];
  if (QUOTE.test(line)) return quote(lines, at);
  if (ITEM.test(line)) return list(lines, at);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at);
}

function children(lines, depth) {
  if (depth >= DEEPEST) return [make("p", {}, lines.join("\n"))];
  return splitBlocks(lines).map(({ build }) => build(depth + 1));
}

function fenced(lines, at) {
  const [, fence, info] = lines[at].match(FENCE);
  const isEnd = (line) => line.trim().length >= fence.length && line.trim().replaceAll(fence[0], "") === "";
  let end = at + 1;
  while (end < lines.length && !isEnd(lines[end])) end++;
  const code = lines.slice(at + 1, end).join("\n");
  return [Math.min(end + 1, lines.length), () => codeBlock(code, info.trim().split(/\s/)[0])];
}

/** Headings of a reply stand below those of the page. */
function heading(line) {
  const [, marks, words = ""] = line.match(HEADING);
  const text = withoutMarks(words.trim());
  return make(`h${Math.min(6, marks.length + 2)}`, { class: `h${marks.length}` }, ...inlineNodes(text));
}

/** A heading may end with marks that a space separates from its words. */
function withoutMarks(text) {
  let end = text.length;
  while (end > 0 && text[end - 1] === "#") end--;
  return end === 0 || text[end - 1] === " " ? text.slice(0, end).trim() : text;
}

function quote(lines, at) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  const inside = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [end, (depth) => make("blockquote", {}, ...children(inside, depth))];
}

function list(lines, at) {
  const ordered = /\d/.test(lines[at].match(ITEM)[2]);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const start = lines[end].match(ITEM);
    if (!start || /\d/.test(start[2]) !== ordered || RULE.test(lines[end])) break;
    const width = start[1].length + start[2].length + Math.min(Math.max(start[3].length, 1), 4);
    const item = [lines[end].slice(width)];
    for (end++; end < lines.length && belongs(lines, end, width); end++) item.push(dedent(lines[end], width));
    items.push(item);
    while (end < lines.length && !lines[end].trim() && ITEM.test(lines[end + 1] ?? "")) end++;
  }
  const start = ordered ? Number.parseInt(lines[at].match(ITEM)[2], 10) : 1;
  const attributes = start === 1 ? {} : { start };
  return [end, (depth) => make(ordered ? "ol" : "ul", attributes, ...items.map((item) => listItem(item, depth)))];
}

/** Whether a line goes on with an item: it is indented, or it is text right below text. */
function belongs(lines, at, width) {
  if (!lines[at].trim()) return at + 1 < lines.length && indent(lines[at + 1]) >= Math.min(width, 2) && lines[at + 1].trim() !== "";
  return indent(lines[at]) >= Math.min(width, 2) || (lines[at - 1].trim() !== "" && !beginsBlock(lines, at));
}

function listItem(lines, depth) {
  const task = lines[0].match(/^\[([ xX])\] /);
  const inside = task ? [lines[0].slice(4), ...lines.slice(1)] : lines;
  const nodes = children(inside, depth);
  // The text of an item stands in it without a paragraph of its own.
  if (nodes[0]?.tagName === "P") nodes.splice(0, 1, ...nodes[0].childNodes);
  if (!task) return make("li", {}, ...nodes);
  const done = task[1] !== " ";
  return make("li", { class: "task" }, make("span", { class: "box", role: "img", "aria-label": done ? "done" : "open" }, done ? "✓" : ""), ...nodes);
}

function isTable(lines, at) {
  const divider = lines[at + 1] ?? "";
  return lines[at].includes("|") && divider.includes("-") && DIVIDER.test(divider) && cells(lines[at]).length === cells(divider).length;
}

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  const sides = cells(lines[at + 1]).map((cell) => (/^:-+:$/.test(cell) ? "center" : /-:$/.test(cell) ? "right" : "left"));
  const row = (line, tag) => {
    const found = cells(line);
    return make("tr", {}, ...sides.map((side, place) => make(tag, { class: side }, ...inlineNodes(found[place] ?? ""))));
  };
  const build = () =>
    make(
      "div",
      { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table" },
      make(
        "table",
        {},
        make("thead", {}, row(lines[at], "th")),
        make("tbody", {}, ...lines.slice(at + 2, end).map((line) => row(line, "td"))),
      ),
    );
  return [end, build];
}

/** The cells of a row. A `|` after a backslash or in code is part of its cell. */
function cells(line) {
  const found = line.trim().replace(/^\|/, "").match(/(?:\\.|`[^`]*`|[^|])*(?:\||$)/g) ?? [];
  const texts = found.map((cell) => cell.replace(/\|$/, "").replaceAll("\\|", "|").trim());
  return texts.at(-1) === "" ? texts.slice(0, -1) : texts;
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !beginsBlock(lines, end)) end++;
  // Deep indentation is that of code which stands there without a fence.
  const text = lines.slice(at, end).map((line) => (indent(line) < 4 ? line.trim() : line.trimEnd())).join("\n");
  return [end, () => make("p", {}, ...inlineNodes(text))];
}

function beginsBlock(lines, at) {
  const line = lines[at];
  return [FENCE, HEADING, RULE, QUOTE].some((pattern) => pattern.test(line)) || /^ {0,3}([-*+]|\d{1,9}[.)]) /.test(line) || isTable(lines, at);
}

function indent(line) {
  return line.length - line.trimStart().length;
}

function dedent(line, width) {
  return line.slice(Math.min(indent(line), width));
}
