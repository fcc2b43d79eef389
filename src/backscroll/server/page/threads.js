// The threads on the left, their branches under them, and the search over everything ever said.

import { all, get } from "./api.js";
import { debounced, fill, find, icon, make, tell, toast } from "./dom.js";
import { cosine, count, date, marking, short, since, titled } from "./words.js";

const MOST_HITS = 30;
const MOST_LOADED = 1000; // threads: older ones are found by the search
const MOST_THREADS = 200; // drawn at once
const BEFORE = 60; // characters shown in front of the first word that is marked

export class Threads {
  // acts: {open(thread, position)}
  constructor(acts) {
    this.acts = acts;
    this.list = find("thread-list");
    this.found = find("found");
    this.search = find("search");
    this.items = [];
    this.most = MOST_THREADS;
    const look = debounced(220, () => this.look());
    this.search.addEventListener("input", look);
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.search.value) {
        event.stopPropagation();
        this.leave();
      }
      if (event.key === "ArrowDown") {
        event.preventDefault();
        this.targets()[0]?.focus();
      }
      if (event.key === "Enter") {
        event.preventDefault();
        look.cancel();
        this.look();
      }
    });
    find("thread-scroll").addEventListener("keydown", (event) => this.pressed(event));
  }

  async load(user) {
    const items = await all("api/threads", { user }, MOST_LOADED);
    this.user = user;
    this.items = [...items, ...items.filter(isBranched).map(unbranched)];
    this.draw();
    return this.items;
  }

  // The thread by its name, or undefined.
  named(thread) {
    return this.items.find((one) => one.thread === thread);
  }

  choose(thread, hasLines = false) {
    this.chosen = thread;
    this.hasLines = hasLines;
    this.draw();
  }

  leave() {
    this.search.value = "";
    this.look();
    this.search.focus();
  }

  draw() {
    const roots = this.items.filter((one) => !one.parent);
    if (!roots.some((one) => one.thread === this.chosen) && this.chosen && !this.named(this.chosen)) {
      roots.unshift({ thread: this.chosen, title: this.hasLines ? this.chosen : "New chat", lines: 0, isNew: true });
    }
    const branches = Map.groupBy(this.items.filter((one) => one.parent), (one) => one.family);
    const shown = roots.filter((root, place) => place < this.most || root.thread === this.chosen);
    const more = () => { this.most += MOST_THREADS; this.draw(); };
    fill(this.list, ...shown.map((root) => this.drawn(root, branches.get(root.thread) ?? [])),
      shown.length < roots.length && make("li", { class: "row" },
        make("button", { class: "plain small", type: "button", onclick: more }, `Show ${count(roots.length - shown.length, "older thread")}`)));
    if (!roots.length) fill(this.list, make("li", { class: "none muted" }, "No threads yet."));
  }

  drawn(root, branches) {
    return make("li", {},
      this.button(root, titled(root), root.isNew ? (this.hasLines ? "" : "nothing said yet") : since(root.updated_at)),
      branches.length > 0 && make("ul", { "aria-label": "Branches" }, ...branches.map((one) => make("li", {},
        this.button(one, one.isOriginal ? "Before branching" : `Branch at line ${one.fork_position}`, root.head === one.thread ? "current" : since(one.updated_at), true)))));
  }

  button(one, title, when, isBranch = false) {
    const isChosen = one.thread === this.chosen;
    return make("button", { type: "button", class: isBranch ? "thread branch" : "thread", "aria-current": isChosen ? "true" : null,
      onclick: () => this.acts.open(one.thread, null) },
    isBranch && icon("branch"),
    make("span", { class: "name", dir: "auto" }, short(title, 90)),
    make("span", { class: "about muted" }, make("span", {}, one.thread === title || one.isNew ? "" : short(one.thread, 40)),
      make("span", {}, one.lines ? `${count(one.lines, "line")} · ${when}` : when)));
  }

  async look() {
    const query = this.search.value.trim();
    this.asking?.abort();
    this.found.hidden = !query;
    this.list.hidden = Boolean(query);
    if (!query) return fill(this.found);
    this.asking = new AbortController();
    try {
      const { items } = await get("api/recall", { user: this.user, q: query, k: MOST_HITS, scope: "user" }, this.asking.signal);
      this.drawFound(query, items);
    } catch (error) {
      if (error.name === "AbortError") return undefined;
      fill(this.found, make("p", { class: "none problem" }, error.message));
      toast(error.title || "The search failed", error.message, () => this.look());
    }
    return undefined;
  }

  drawFound(query, hits) {
    const said = hits.length ? `${count(hits.length, "line")} found` : "Nothing found";
    tell(said);
    const words = marking(query);
    fill(this.found,
      make("h2", { class: "label" }, said),
      make("ul", { class: "hits" }, ...hits.map((hit) => make("li", {},
        make("button", { type: "button", class: "hit", onclick: () => this.acts.open(hit.thread, hit.position) },
          make("span", { class: "name", dir: "auto" }, ...marked(hit.text, words)),
          make("span", { class: "about muted" },
            make("span", {}, `${hit.name || hit.role} in ${short(this.named(hit.thread)?.title || hit.thread, 30)}`),
            make("span", {}, `${date(hit.created_at)} · ${cosine(hit.similarity)}`)))))),
      !hits.length && make("p", { class: "none muted" }, "No line is near enough in meaning or shares a word. Say it in other words."));
  }

  targets() {
    return [...find("thread-scroll").querySelectorAll("button")].filter((one) => one.offsetParent !== null);
  }

  pressed(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const targets = this.targets();
    const next = targets.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    event.preventDefault();
    if (next < 0) this.search.focus();
    else targets[Math.min(next, targets.length - 1)]?.focus();
  }
}

// A thread whose name stands for a branch of it now, and its own lines, which stay.
const isBranched = (one) => !one.parent && one.head && one.head !== one.thread;
const unbranched = (one) => ({ ...one, thread: `${one.thread}~0`, parent: one.thread, family: one.thread, isOriginal: true, lines: 0 });

// The text around the first word that was asked for, with all such words marked.
function marked(text, words) {
  const flat = text.replace(/\s+/g, " ").trim();
  const first = words ? Math.max(0, flat.search(words)) : 0;
  const begin = first > BEFORE ? first - BEFORE : 0;
  const shown = short(flat.slice(begin, begin + 220), 200);
  const parts = begin ? ["…"] : [];
  let at = 0;
  for (const found of words ? shown.matchAll(words) : []) {
    parts.push(shown.slice(at, found.index), make("mark", {}, found[0]));
    at = found.index + found[0].length;
  }
  return [...parts, shown.slice(at)];
}
