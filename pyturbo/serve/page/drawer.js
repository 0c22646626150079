// The list of conversations. On a narrow window it lies over the page; on a wide one it stands beside it.

import { byId, make } from "./dom.js";
import { exportJson, exportMarkdown, readExport } from "./export.js";
import { setIcon } from "./icons.js";
import { notice } from "./notice.js";
import { current, remove, rename, restore, watch } from "./session.js";
import { conversations } from "./store.js";
import { titleOf } from "./tree.js";

const narrow = matchMedia("(max-width: 860px)");
const DAY = 86_400_000;

/** Show the list and let it be used. */
export function startDrawer() {
  byId("drawer-open").addEventListener("click", () => setDrawer(!isOpen()));
  byId("drawer-close").addEventListener("click", () => setDrawer(false));
  byId("scrim").addEventListener("click", () => setDrawer(false));
  byId("export-all").addEventListener("click", () => exportJson(conversations(), "conversations"));
  byId("import-button").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", importFile);
  narrow.addEventListener("change", () => setDrawer(!narrow.matches));
  watch("list", drawList);
  watch("opened", () => {
    drawList();
    if (narrow.matches) setDrawer(false);
  });
  setDrawer(!narrow.matches);
  drawList();
}

/** Close the list where it lies over the page; whether it did. */
export function closeDrawer() {
  const closes = narrow.matches && isOpen();
  if (closes) setDrawer(false);
  return closes;
}

function isOpen() {
  return document.body.dataset.drawer === "open";
}

function setDrawer(open) {
  const over = open && narrow.matches;
  const wasOver = !byId("scrim").hidden;
  document.body.dataset.drawer = open ? "open" : "closed";
  byId("drawer").inert = !open;
  byId("scrim").hidden = !over;
  document.querySelector(".stage").inert = over;
  byId("drawer-open").setAttribute("aria-expanded", String(open));
  if (over) byId("new-conversation").focus();
  else if (wasOver) byId("drawer-open").focus();
}

function drawList() {
  const items = [];
  let last = null;
  for (const conversation of conversations()) {
    const day = dayOf(conversation.changed);
    if (day !== last) items.push(make("li", { class: "day" }, day));
    items.push(listItem(conversation));
    last = day;
  }
  byId("conversation-list").replaceChildren(...items);
  byId("export-all").disabled = !items.length;
  const title = titleOf(current());
  document.title = title === "New conversation" ? "pyturbo" : `${title} · pyturbo`;
}

function listItem(conversation) {
  const open = conversation.id === current().id;
  const link = make("a", { href: `#${conversation.id}`, class: "conversation", "aria-current": open ? "page" : null, title: titleOf(conversation) }, titleOf(conversation));
  link.addEventListener("click", () => narrow.matches && setDrawer(false));
  const more = make("button", { class: "icon-button small", type: "button", "aria-label": `More about ${titleOf(conversation)}`, "aria-haspopup": "menu" });
  setIcon(more, "more");
  const item = make("li", { class: open ? "open" : "" }, link, more);
  more.addEventListener("click", () => showMenu(conversation, item, more));
  return item;
}

function showMenu(conversation, item, button) {
  const choice = (words, name, action, look = "") => {
    const element = make("button", { type: "button", role: "menuitem", class: look, onclick: () => (menu.hidePopover(), action()) }, words);
    setIcon(element, name);
    return element;
  };
  const menu = make(
    "div",
    { class: "menu", role: "menu", popover: "auto" },
    choice("Rename", "edit", () => beginRename(conversation, item)),
    choice("Export as Markdown", "markdown", () => exportMarkdown(conversation)),
    choice("Export as JSON", "download", () => exportJson([conversation], titleOf(conversation))),
    choice("Delete", "trash", () => removeWithUndo(conversation), "danger"),
  );
  menu.addEventListener("toggle", ({ newState }) => newState === "closed" && menu.remove());
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...menu.children];
    all.at((all.indexOf(document.activeElement) + step) % all.length).focus();
  });
  item.append(menu);
  menu.showPopover();
  const { right, bottom } = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  menu.style.setProperty("left", `${Math.max(8, right - width)}px`);
  menu.style.setProperty("top", `${Math.min(bottom + 4, innerHeight - height - 8)}px`);
  menu.firstElementChild.focus();
}

function beginRename(conversation, item) {
  const field = make("input", { class: "rename", "aria-label": "Name of the conversation", maxlength: "120" });
  field.value = titleOf(conversation);
  let done = false;
  const finish = (keeps) => {
    if (done) return;
    done = true;
    const changed = keeps && field.value.trim() !== titleOf(conversation);
    rename(conversation, changed ? field.value : conversation.title);
  };
  field.addEventListener("blur", () => finish(true));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) finish(true);
    else if (event.key === "Escape") finish(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  item.replaceChildren(field);
  field.select();
}

function removeWithUndo(conversation) {
  remove(conversation);
  const undo = () => {
    restore(conversation);
    location.hash = conversation.id;
  };
  notice("The conversation is deleted.", { action: ["Undo", undo] });
}

async function importFile() {
  const [file] = byId("import-file").files;
  if (!file) return;
  const found = readExport(await file.text());
  byId("import-file").value = "";
  if (!found) return notice(`${file.name} has no conversations of this page.`);
  found.forEach(restore);
  return notice(`${found.length} ${found.length === 1 ? "conversation is" : "conversations are"} in the list.`);
}

function dayOf(time) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (time >= today) return "Today";
  if (time >= today - DAY) return "Yesterday";
  return time >= today - 7 * DAY ? "The last week" : "Earlier";
}
