// The chat in the middle: the whole history, of which a part is on the page; more is loaded where one scrolls to.

import { get } from "./api.js";
import { fill, find, icon, make, tell } from "./dom.js";
import { prose } from "./prose.js";
import { count, day, hour, number, short } from "./words.js";

const PAGE = 60; // lines loaded at once
const MOST = 300; // lines on the page at once: what lies further away leaves it, and is loaded again
const NEAR = 900; // pixels from an end of the page at which more is loaded
const LONG = 20000; // characters from which on a text is not shown whole at once
const INSIDE = "button, pre, summary"; // of a line: what takes the focus
const STICKY = 80; // pixels from the bottom within which new text is followed

export class History {
  // acts: {edit(line), retry(line), pin(line, is), empty() -> elements, coming() -> {text, said} of a reply on its way}
  constructor(acts) {
    this.acts = acts;
    this.place = find("history");
    this.latest = find("to-latest");
    this.lines = []; // those on the page: {line, element}
    this.parts = new Map(); // id -> part of the context
    this.loading = Promise.resolve();
    this.opened = 0;
    this.place.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.place.addEventListener("keydown", (event) => this.pressed(event));
    this.place.addEventListener("focusin", (event) => this.entered(event.target.closest("article")));
    this.latest.addEventListener("click", () => this.toLatest());
    new ResizeObserver(() => { if (this.follows) this.toBottom(); }).observe(this.place);
  }

  // Show a thread, its newest lines or those around a position. Returns how many lines it has.
  async open(user, thread, at = null) {
    const opened = ++opens;
    this.opened = opened;
    const page = thread === null ? nothing : await get("api/messages", { user, thread, around: at, limit: PAGE });
    if (opened !== this.opened) return null;
    Object.assign(this, { user, thread, first: page.first, last: page.last, total: page.total });
    this.lines = [];
    this.live = null;
    this.follows = at === null;
    fill(this.place);
    this.place.classList.toggle("empty", !page.items.length);
    if (page.items.length) this.add(page.items, false);
    else fill(this.place, ...this.acts.empty());
    this.beginAgain();
    if (at === null) this.toBottom();
    else this.show(at);
    this.scrolled();
    return page.total;
  }

  // Show that the thread could not be read.
  fail() {
    Object.assign(this, { lines: [], live: null, thread: undefined, first: null, last: null, total: 0, opened: 0 });
    this.place.classList.add("empty");
    fill(this.place, make("p", { class: "muted" }, "This thread could not be read."));
  }

  // Scroll to a line and mark it, loading it where it is not on the page.
  async jump(position) {
    if (!this.element(position)) await this.open(this.user, this.thread, position);
    this.show(position);
  }

  // Load what was stored behind the last line on the page; where that is not the thread's last, nothing moves.
  async refresh() {
    this.settle();
    if (!this.lines.length) return this.open(this.user, this.thread);
    const followed = this.follows;
    const wasAtEnd = this.atEnd();
    if (wasAtEnd) await this.load("newer");
    else await this.measure();
    if (followed && wasAtEnd) this.toBottom();
    return this.total;
  }

  // The newest line of the page's end that is like this, or undefined.
  newest(is = () => true) {
    return this.lines.map((one) => one.line).reverse().find(is);
  }

  // Put a prompt and the beginning of its reply under the history; they are taken away by `settle`.
  begin(prompt, said = "") {
    if (this.place.classList.contains("empty")) fill(this.place);
    this.place.classList.remove("empty");
    const text = make("div", { class: "text", dir: "auto" }, make("span", { class: "thinking", "aria-label": "Waiting for the model" }));
    const asked = prompt === null ? [] : [pending("user", "You", make("div", { class: "text", dir: "auto" }, ...prose(prompt)))];
    const reply = pending("assistant", "Assistant", text);
    reply.setAttribute("aria-busy", "true");
    this.live = { elements: [...asked, reply], text, said: "" };
    this.place.append(...this.live.elements);
    if (said) this.more(said);
  }

  // Show the reply that is on its way, where the thread's end is on the page.
  beginAgain() {
    const coming = this.acts.coming();
    if (coming && !this.live && this.atEnd()) this.begin(coming.text, coming.said);
  }

  // More of the reply.
  more(piece) {
    if (!this.live) return;
    this.live.said += piece;
    if (this.live.drawing) return;
    this.live.drawing = requestAnimationFrame(() => {
      if (!this.live) return;
      this.live.drawing = 0;
      fill(this.live.text, ...prose(this.live.said));
      if (this.follows) this.toBottom();
    });
  }

  // Take the prompt and reply that were shown while they came off the page: they are stored now, or are not.
  settle() {
    if (!this.live) return;
    this.live.elements.forEach((element) => element.remove());
    this.live = null;
    if (this.lines.length) return;
    this.place.classList.add("empty");
    fill(this.place, ...this.acts.empty());
  }

  // Mark the lines that are in the context; parts: line id -> part.
  mark(parts) {
    this.parts = parts;
    this.lines.forEach((one) => this.marked(one));
  }

  follow() {
    this.follows = true;
    this.toBottom();
  }

  toBottom() {
    this.place.scrollTop = this.place.scrollHeight;
  }

  async toLatest() {
    if (this.atEnd()) this.place.scrollTo({ top: this.place.scrollHeight, behavior: smooth() });
    else await this.open(this.user, this.thread);
    this.follows = true;
    this.place.focus({ preventScroll: true });
  }

  changed(line) {
    const one = this.lines.find((other) => other.line.position === line.position);
    if (!one) return;
    const focused = one.element.contains(document.activeElement) && document.activeElement.dataset.act;
    const element = this.drawn(line, one.element.dataset.day);
    one.element.replaceWith(element);
    Object.assign(one, { line, element });
    this.marked(one);
    if (focused) element.querySelector(`[data-act="${focused}"]`)?.focus();
  }

  // What follows is for this module alone.

  atEnd() {
    return this.last === null || (this.lines.length > 0 && this.lines.at(-1).line.position >= this.last);
  }

  atStart() {
    return this.first === null || (this.lines.length > 0 && this.lines[0].line.position <= this.first);
  }

  element(position) {
    return this.lines.find((one) => one.line.position === position)?.element;
  }

  show(position) {
    const element = this.element(position);
    if (!element) return;
    this.follows = false;
    element.scrollIntoView({ block: "center" });
    element.classList.remove("found");
    requestAnimationFrame(() => element.classList.add("found"));
    setTimeout(() => element.classList.remove("found"), 2500);
    element.focus({ preventScroll: true });
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.place;
    const below = scrollHeight - scrollTop - clientHeight;
    this.follows = below < STICKY && this.atEnd();
    this.latest.hidden = this.follows || !this.lines.length;
    if (scrollTop < NEAR && !this.atStart()) this.load("older");
    else if (below < NEAR && !this.atEnd()) this.load("newer");
  }

  // One load after the other; a load that is under way serves whoever asks for the same.
  load(which) {
    if (this.under === which) return this.loading;
    this.under = which;
    this.loading = this.loading.catch(() => {}).then(() => this.loaded(which)).finally(() => { this.under = null; });
    return this.loading;
  }

  // Ask where the thread ends now.
  async measure() {
    const page = await get("api/messages", { user: this.user, thread: this.thread, limit: 1 });
    Object.assign(this, { first: page.first, last: page.last, total: page.total });
    this.scrolled();
  }

  async loaded(which) {
    const opened = this.opened;
    if (!this.lines.length) return;
    const at = which === "older" ? { before: this.lines[0].line.position } : { after: this.lines.at(-1).line.position };
    const query = { user: this.user, thread: this.thread, ...at, limit: PAGE };
    const page = await get("api/messages", query);
    if (opened !== this.opened) return;
    Object.assign(this, { first: page.first, last: page.last, total: page.total });
    this.steadily(() => {
      this.add(page.items, which === "older");
      this.trim(which === "older");
      this.beginAgain();
    });
    requestAnimationFrame(() => this.scrolled());
  }

  add(lines, isInFront) {
    const made = lines.map((line) => ({ line, element: this.drawn(line) }));
    this.lines = isInFront ? [...made, ...this.lines] : [...this.lines, ...made];
    if (isInFront) this.place.prepend(...made.map((one) => one.element));
    else if (this.live) this.live.elements[0].before(...made.map((one) => one.element));
    else this.place.append(...made.map((one) => one.element));
    made.forEach((one) => this.marked(one));
    this.days();
    this.place.setAttribute("aria-busy", "false");
  }

  trim(atBottom) {
    const spare = this.lines.length - MOST;
    if (spare <= 0) return;
    if (atBottom && this.live) { // it is put back where one comes back to the end
      this.live.elements.forEach((element) => element.remove());
      this.live = null;
    }
    const gone = atBottom ? this.lines.splice(-spare) : this.lines.splice(0, spare);
    gone.forEach((one) => one.element.remove());
    this.days();
  }

  // Change what is on the page without moving what is looked at.
  steadily(change) {
    const top = this.place.getBoundingClientRect().top;
    const seen = this.lines.find((one) => one.element.getBoundingClientRect().bottom > top);
    const before = seen?.element.getBoundingClientRect().top;
    change();
    if (seen?.element.isConnected) this.place.scrollTop += seen.element.getBoundingClientRect().top - before;
  }

  // Name the day over the first line of each.
  days() {
    let last = "";
    for (const { line, element } of this.lines) {
      const today = day(line.created_at);
      const heading = element.querySelector(".day");
      if (today === last) heading?.remove();
      else if (!heading) element.prepend(make("p", { class: "day" }, make("span", {}, today)));
      last = today;
    }
  }

  marked({ line, element }) {
    const part = this.parts.get(line.id);
    if (part) element.dataset.part = part;
    else delete element.dataset.part;
    const told = element.querySelector(".in-part");
    told.textContent = part ? `in the context: ${part}` : "";
  }

  drawn(line) {
    const speaker = line.name || { user: "You", assistant: "Assistant", tool: "Tool", system: "System", developer: "Developer" }[line.role];
    const label = `${speaker}, ${hour(line.created_at)}, line ${line.position}`;
    const about = [
      make("span", { class: "who" }, speaker),
      make("time", { datetime: line.created_at }, hour(line.created_at)),
      line.pinned && make("span", { class: "badge anchors" }, "pinned"),
      line.partial && make("span", { class: "badge" }, "stopped"),
      make("span", { class: "where" }, `#${line.position}`),
      make("span", { class: "unseen in-part" }),
    ];
    const element = make("article", { class: `line ${line.role}`, tabindex: "-1", "aria-label": label, "data-position": line.position },
      make("div", { class: "body" },
        make("header", {}, ...about, this.buttons(line)),
        ...content(line)));
    element.querySelectorAll(INSIDE).forEach((target) => { target.tabIndex = -1; });
    return element;
  }

  buttons(line) {
    const act = (name, label, call) => make("button",
      { class: "quiet icon", type: "button", "data-act": name, "aria-label": label, title: label, onclick: call }, icon(name));
    const says = line.text && line.role !== "tool";
    return make("span", { class: "acts" },
      says && act("copy", "Copy", () => navigator.clipboard.writeText(line.text).then(() => tell("Copied"), () => tell("Could not copy"))),
      says && !line.tool_calls && act("pin", line.pinned ? "Unpin" : "Pin: keep it in every context", () => this.acts.pin(line, !line.pinned)),
      line.role === "user" && act("edit", "Edit: the chat goes on from here as a branch", () => this.acts.edit(line)),
      line.role === "assistant" && !line.tool_calls && act("retry", "Retry: another reply, in a branch", () => this.acts.retry(line)));
  }

  // What is in a line is reached by Tab from that line alone: else there would be a thousand stops on the way.
  entered(element) {
    if (element === this.within) return;
    for (const [one, isIn] of [[this.within, false], [element, true]]) {
      one?.querySelectorAll(INSIDE).forEach((target) => { target.tabIndex = isIn ? 0 : -1; });
    }
    this.within = element;
  }

  pressed(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 1, PageUp: -1 };
    if (!(event.key in moves) && event.key !== "End" && event.key !== "Home") return;
    if (event.target.closest("button, pre, summary, input, textarea")) return;
    if (event.key === "End" || event.key === "Home") {
      event.preventDefault();
      if (event.key === "End") this.toLatest();
      else this.jump(this.first);
      return;
    }
    const at = this.lines.findIndex((one) => one.element === event.target.closest("article"));
    if (at < 0 && event.key.startsWith("Page")) return;
    const next = this.lines[at < 0 ? this.lines.length - 1 : at + moves[event.key]];
    event.preventDefault();
    next?.element.focus();
    next?.element.scrollIntoView({ block: "nearest" });
  }
}

let opens = 0;
const nothing = { items: [], first: null, last: null, total: 0 };
const smooth = () => (matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth");

function pending(role, who, text) {
  return make("article", { class: `line ${role} pending`, "aria-label": who },
    make("div", { class: "body" }, make("header", {}, make("span", { class: "who" }, who)), text));
}

function content(line) {
  if (line.role === "tool") return [folded(`Result, ${count(line.text.length, "character")}`, line.text)];
  const calls = (line.tool_calls || []).map((call) =>
    folded(`Called ${call.function?.name ?? "a tool"}`, call.function?.arguments ?? ""));
  const attached = (Array.isArray(line.content) ? line.content : []).filter((part) => part.type !== "text");
  const text = line.tool_calls ? (typeof line.content === "string" ? line.content : "") : line.text;
  return [
    text && said(text),
    ...attached.map((part) => make("p", { class: "badge" }, `attached: ${part.type.replace(/^input_|_url$/g, "")}`)),
    ...calls,
  ].filter(Boolean);
}

// A text; one of many pages begins with the first.
function said(text) {
  const isLong = text.length > LONG;
  const place = make("div", { class: "text", dir: "auto" }, ...prose(isLong ? text.slice(0, LONG / 2) : text));
  if (!isLong) return place;
  const all = make("button", { class: "plain small", type: "button", onclick: () => fill(place, ...prose(text)) },
    `Show all ${number(text.length)} characters`);
  place.append(all);
  return place;
}

function folded(title, text) {
  return make("details", { class: "folded" }, make("summary", {}, `${title} `, make("span", { class: "muted" }, short(text, 60))),
    make("pre", { tabindex: "0", role: "region", "aria-label": title }, make("code", {}, text)));
}

export const sized = (total, tokens) => `${count(total, "line")}${tokens ? ` · ${number(tokens)} tokens` : ""}`;
