// What happens when: opening, writing, streaming, editing. The parts of the page are in modules of their own.

import { Problem, all, download, forgetKey, get, keepKey, onKeyNeeded, send } from "./api.js";
import { ContextPicture, smallBar, told } from "./context.js";
import { debounced, fill, find, icon, make, tell, toast } from "./dom.js";
import { History, sized } from "./history.js";
import { Replies, isStop } from "./replies.js";
import { Threads } from "./threads.js";
import { drawSent, drawTime } from "./views.js";
import { count, number, short, titled } from "./words.js";

const DEFAULT_USER = "default";
const state = { user: DEFAULT_USER, thread: null, editing: null, draft: "", status: null };
const prompt = find("prompt");

let picture = null;
const history_ = new History({ edit, retry, pin, empty, coming: () => replies.in(state.user, state.thread) });
const threads = new Threads({ open: (thread, position) => go(thread, position) });
const isOpen = ({ user, thread }) => user === state.user && thread === state.thread;
const replies = new Replies({ more: (reply, piece) => { if (isOpen(reply)) history_.more(piece); }, over: replied });
const coming = () => replies.in(state.user, state.thread);

// Keys, themes, panes

let unlocking = null; // one question, however many requests wait for its answer

onKeyNeeded((problem) => {
  if (problem) forgetKey();
  unlocking ??= new Promise((resolve) => {
    find("key-problem").textContent = problem;
    find("key-dialog").showModal();
    find("key-form").onsubmit = () => {
      keepKey(find("key").value.trim());
      find("key").value = "";
      unlocking = null;
      resolve();
    };
  });
  return unlocking;
});
find("key-dialog").addEventListener("cancel", (event) => event.preventDefault());

const THEMES = ["system", "light", "dark"];
const theme = () => localStorage.getItem("backscroll theme") || "system";

function dress() {
  const now = theme();
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  document.documentElement.dataset.theme = now;
  const label = `Colors: ${now}. Change to ${next}`;
  const button = fill(find("theme"), icon({ system: "screen", light: "sun", dark: "moon" }[now]));
  button.setAttribute("aria-label", label);
  button.title = label;
  button.onclick = () => { localStorage.setItem("backscroll theme", next); dress(); };
}

function pane(name) {
  find("app").dataset.pane = name;
  for (const button of document.querySelectorAll(".panes button")) {
    if (button.dataset.pane === name) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

const isNarrow = () => matchMedia("(max-width: 760px)").matches;

// Where we are stands in the address, so that it can be kept, sent and gone back to.

function go(thread, position = null, user = state.user) {
  const place = new URLSearchParams({ user, ...(thread === null ? {} : { thread }), ...(position === null ? {} : { at: position }) });
  const same = `#${place}` === location.hash;
  if (same) arrive();
  else location.hash = String(place);
}

async function arrive() {
  const place = new URLSearchParams(location.hash.slice(1));
  const user = place.get("user") || state.user;
  const thread = place.get("thread");
  const at = place.has("at") ? Number(place.get("at")) : null;
  await tried("This thread could not be opened", arrive, async () => {
    if (user !== state.user || !threads.user) await visit(user);
    if (thread !== state.thread || !history_.opened) await open(thread, at);
    else if (at !== null) await history_.jump(at);
    if (thread !== null || at !== null) pane("chat");
  });
}

async function visit(user) {
  state.user = user;
  state.thread = null;
  history_.opened = 0;
  await threads.load(user);
  threads.look();
  find("user").value = user;
}

async function open(thread, at = null) {
  state.thread = thread;
  threads.choose(thread);
  stopEditing();
  try {
    await history_.open(state.user, thread, at);
    entitle();
  } catch (error) {
    history_.fail(); // what is on the page must be of the thread that is written to
    entitle();
    picture.nothing("");
    meter();
    throw error;
  }
  writing();
  look.cancel();
  await see();
  if (at === null && !isNarrow()) prompt.focus();
}

function entitle() {
  const info = threads.named(state.thread);
  if (!info && history_.total) threads.choose(state.thread, true); // older than those that are listed
  const title = info ? titled(info) : history_.total ? state.thread : "New chat";
  find("title").textContent = state.thread === null ? "Backscroll" : short(title, 120);
  find("subtitle").textContent = info ? [info.lines > 0 && sized(info.lines, info.tokens), info.isOriginal ? "before branching" : info.parent && `branch at line ${info.fork_position}`].filter(Boolean).join(" · ") : "";
  document.title = state.thread === null ? "Backscroll" : `${short(title, 60)} – Backscroll`;
  find("export").hidden = !info;
  find("delete").hidden = !info;
}

function newChat() {
  const stamp = new Date().toISOString().slice(0, 16).replace("T", " ").replace(":", ".");
  const chance = [...crypto.getRandomValues(new Uint8Array(2))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  go(`chat ${stamp} ${chance}`);
  prompt.focus();
}

function empty() {
  const hasThreads = threads.items.length > 0;
  if (state.thread !== null || hasThreads) {
    return [make("div", { class: "welcome" }, make("h2", {}, state.thread === null ? "Choose a thread, or begin one" : "A new chat"),
      make("p", { class: "muted" }, "Say anything. However long it gets, nothing of it is lost, and each reply is given what matters for it."))];
  }
  return [make("div", { class: "welcome" },
    make("h2", {}, "Chats without an end"),
    make("p", { class: "muted" }, "Every line is kept. For each new message, the lines that matter are put together within a budget of tokens, and on the right you see which, and why."),
    make("p", {}, make("button", { class: "strong", type: "button", onclick: newChat }, "Begin a chat")),
    make("p", { class: "muted small" }, "Or bring one along: ", make("code", {}, "backscroll import FILE")))];
}

// The context of what is being written

const look = debounced(260, () => see());

async function see() {
  const draft = prompt.value.trim();
  const isEmpty = state.thread === null || (!history_.total && !draft);
  if (isEmpty) {
    picture.nothing(state.thread === null ? "Open a thread to see what a model would get of it." : "Write something to see what a model would get.");
  } else if ((await picture.ask(state.user, state.thread, draft || null)) === null) {
    return;
  }
  history_.mark(picture.parts());
  meter();
  await drawView();
}

function meter() {
  const button = find("meter");
  button.hidden = !picture.made;
  if (!picture.made) return;
  fill(button, smallBar(picture.made), make("span", {}, told(picture.made)));
  button.setAttribute("aria-label", `Context: ${number(picture.made.tokens)} of ${number(picture.made.max_tokens)} tokens. Show it.`);
}

const view = () => document.querySelector('[role="tab"][aria-selected="true"]').id;
let timing = null;

async function drawView() {
  if (view() === "tab-sent") drawSent(picture.made);
  if (view() !== "tab-time") return;
  timing?.abort();
  timing = new AbortController();
  const place = find("time");
  if (state.thread === null) { fill(place, make("p", { class: "none muted" }, "Open a thread.")); return; }
  try {
    await drawTime(state.user, state.thread, timing.signal);
  } catch (error) {
    if (error.name !== "AbortError") fill(place, make("p", { class: "notice bad", role: "alert" }, error.message));
  }
}

function chooseTab(tab) {
  for (const other of document.querySelectorAll('[role="tab"]')) {
    const isChosen = other === tab;
    other.setAttribute("aria-selected", String(isChosen));
    other.tabIndex = isChosen ? 0 : -1;
    find(other.getAttribute("aria-controls")).hidden = !isChosen;
  }
  drawView();
}

function jump(source) {
  const family = source.thread.replace(/~\d+$/, "");
  const here = threads.named(state.thread)?.family || state.thread;
  const isHere = family === here && source.user === state.user;
  go(isHere ? state.thread : family, source.position, source.user);
  pane("chat");
}

// Writing

async function submit() {
  const text = prompt.value.trim();
  if (coming()) { replies.stop(state.user, state.thread); return; }
  if (!text) return;
  if (state.thread === null) await begin();
  if (state.editing) await sendEdited(text);
  else if (hasModel()) await converse(text);
  else await store(text);
}

async function begin() {
  const stamp = new Date().toISOString().slice(0, 19).replace("T", " ").replaceAll(":", ".");
  state.thread = `chat ${stamp}`;
  history_.thread = state.thread;
  history_.user = state.user;
  threads.choose(state.thread);
  window.history.replaceState(null, "", `#${new URLSearchParams({ user: state.user, thread: state.thread })}`);
  entitle();
}

// Send a prompt, or none where the last stored message is to be answered, and show the reply as it comes.
async function converse(text) {
  const { user, thread } = state;
  if (text !== null) prompt.value = "";
  grow();
  if (!history_.atEnd()) await history_.open(user, thread);
  history_.begin(text);
  history_.follow();
  tell("Sent. The reply is on its way.");
  const { maxTokens, scope } = picture.chosen;
  const ends = replies.begin({ user, thread, text, last: history_.last, maxTokens, scope });
  writing();
  await ends;
}

async function replied(reply, failure) {
  const isHere = () => isOpen(reply);
  writing();
  if (isStop(failure)) tell("Stopped");
  const isGivenBack = failure && reply.text !== null && isHere() && !prompt.value;
  if (isGivenBack) { prompt.value = reply.text; grow(); } // at once: it may be that nothing can be asked any more
  if (failure && isHere()) history_.settle();
  await tried("The history could not be loaded", arrive, async () => {
    if (reply.user === state.user) await threads.load(state.user);
    if (!isHere()) return;
    await history_.refresh();
    const isStored = (history_.last ?? -1) > (reply.last ?? -1);
    if (isGivenBack && isStored && prompt.value === reply.text) { prompt.value = ""; grow(); }
    entitle();
    await see();
  });
  if (failure && !isStop(failure)) {
    const again = reply.text === null && isHere() ? () => converse(null) : null;
    toast(failure.title || "The reply failed", failure.detail || failure.message, again);
  } else if (!failure && isHere()) {
    tell(`Reply: ${short(reply.said, 600)}`);
  }
  if (isHere() && !isNarrow()) prompt.focus();
}

async function store(text) {
  await tried("It was not stored", null, async () => {
    const message = { role: "user", content: text, id: crypto.randomUUID() };
    await send("POST", "api/messages", { user: state.user, thread: state.thread }, { messages: [message] });
    prompt.value = "";
    grow();
    await threads.load(state.user);
    threads.choose(state.thread);
    if (history_.atEnd()) await history_.refresh();
    else await history_.open(state.user, state.thread);
    entitle();
    await see();
    tell("Stored");
  });
}

// Editing and asking again: the thread goes on as a branch from there, the old lines stay stored.

function edit(line) {
  if (!state.editing) state.draft = prompt.value;
  state.editing = line;
  prompt.value = line.text;
  grow();
  find("hint").textContent = "";
  find("hint").append(`Editing line ${line.position}: the chat goes on from there as a branch, the old lines stay stored. `,
    make("button", { class: "link", type: "button", onclick: leaveEditing }, "Leave it"));
  pane("chat");
  prompt.focus();
  prompt.setSelectionRange(prompt.value.length, prompt.value.length);
}

function stopEditing() {
  state.editing = null;
  hint();
}

function leaveEditing() {
  stopEditing();
  prompt.value = state.draft;
  grow();
  look();
}

async function sendEdited(text) {
  const line = state.editing;
  await tried("The edit was not stored", null, async () => {
    await branch(line.position, { role: "user", content: text, id: crypto.randomUUID() });
    leaveEditing();
    if (hasModel()) await converse(null);
    else await see();
  });
}

async function retry(line) {
  if (coming()) return;
  if (!hasModel()) { toast("No language model", "Another reply needs one: start the server with --llm."); return; }
  await tried("The reply could not be asked for again", () => retry(line), async () => {
    await branch(line.position, null);
    await converse(null);
  });
}

async function branch(position, message) {
  await send("POST", "api/branches", { user: state.user, thread: state.thread, position }, { message });
  await threads.load(state.user);
  await history_.open(state.user, state.thread);
  entitle();
}

async function pin(line, isPinned) {
  await tried(isPinned ? "It was not pinned" : "It was not unpinned", null, async () => {
    history_.changed(await send(isPinned ? "PUT" : "DELETE", "api/pins", { user: state.user, thread: state.thread, position: line.position }));
    tell(isPinned ? "Pinned" : "Unpinned");
    await see();
  });
}

async function remove() {
  const info = threads.named(state.thread);
  find("sure-title").textContent = "Delete this thread?";
  find("sure-text").textContent = `${count(info?.lines ?? 0, "line")} and all its branches are deleted for good, with their bytes.`;
  const dialog = find("sure-dialog");
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => { dialog.addEventListener("close", resolve, { once: true }); });
  if (dialog.returnValue !== "yes") return;
  await tried("It was not deleted", null, async () => {
    replies.stop(state.user, state.thread);
    await send("DELETE", "api/threads", { user: state.user, thread: info?.family || state.thread });
    await threads.load(state.user);
    tell("Deleted");
    go(threads.items[0]?.thread ?? null);
  });
}

async function exported() {
  await tried("It could not be exported", exported, async () => {
    const blob = await download("api/export", { user: state.user, thread: state.thread });
    const address = URL.createObjectURL(blob);
    make("a", { href: address, download: `${state.thread.replace(/[^\p{L}\p{N} ._-]/gu, "_")}.jsonl` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  });
}

const hasModel = () => Boolean(state.status?.has_model);

function writing() {
  const isReplying = Boolean(coming());
  const button = find("send");
  fill(button, icon(isReplying ? "stop" : "send"));
  button.classList.toggle("stopping", isReplying);
  const label = isReplying ? "Stop the reply" : hasModel() ? "Send" : "Store the line";
  button.setAttribute("aria-label", label);
  button.title = label;
}

function hint() {
  find("hint").textContent = hasModel() ? "" : "The context follows as you write. The button stores your message as a line.";
}

function grow() {
  prompt.rows = Math.min(10, Math.max(1, prompt.value.split("\n").length, Math.ceil(prompt.value.length / 90)));
}

// Do something; where it fails say so, and offer to try again.
async function tried(title, again, work) {
  try {
    await work();
    find("offline").hidden = true;
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 0) {
      fill(find("offline"), make("strong", {}, "The server cannot be reached. "), "Is it still running? ",
        make("button", { class: "plain small", type: "button", onclick: () => (again || arrive)() }, "Try again"));
      find("offline").hidden = false;
      return;
    }
    toast(title, error.message, again);
    if (!(error instanceof Problem)) throw error;
  }
}

function pressed(event) {
  const inField = event.target.closest?.("input, textarea, select");
  const find_ = (event.key === "/" && !inField && !event.ctrlKey && !event.metaKey) || (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey));
  if (document.querySelector("dialog[open]")) return;
  if (find_) {
    event.preventDefault();
    pane("threads");
    find("search").focus();
    find("search").select();
  } else if (event.altKey && event.code === "KeyN") {
    event.preventDefault();
    newChat();
  } else if (event.key === "?" && !inField) {
    find("help-dialog").showModal();
  } else if (event.key === "Escape") {
    if (coming()) replies.stop(state.user, state.thread);
    else if (state.editing) leaveEditing();
  }
}

// Others may have written meanwhile: programs, the proxy, another window.
async function lookAgain() {
  if (document.hidden || coming() || !picture || state.thread === null || !history_.atEnd()) return;
  await tried("What is new could not be loaded", null, async () => {
    await threads.load(state.user);
    const before = history_.last;
    await history_.refresh();
    entitle();
    if (history_.last !== before) await see();
  });
}

function listen() {
  document.addEventListener("visibilitychange", lookAgain);
  window.addEventListener("focus", lookAgain);
  window.addEventListener("hashchange", arrive);
  document.addEventListener("keydown", pressed);
  find("composer").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  prompt.addEventListener("input", () => { grow(); look(); });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!hasModel()) see();
      else if (!coming()) submit();
    } else if (event.key === "ArrowUp" && !prompt.value && !coming()) {
      const mine = history_.newest((line) => line.role === "user");
      if (mine) { event.preventDefault(); edit(mine); }
    }
  });
  find("new-chat").addEventListener("click", newChat);
  find("delete").addEventListener("click", remove);
  find("export").addEventListener("click", exported);
  find("help").addEventListener("click", () => find("help-dialog").showModal());
  find("meter").addEventListener("click", () => { pane("context"); find("tab-picture").focus(); });
  find("user").addEventListener("change", () => go(null, null, find("user").value));
  for (const button of document.querySelectorAll(".panes button")) button.addEventListener("click", () => pane(button.dataset.pane));
  for (const tab of document.querySelectorAll('[role="tab"]')) {
    tab.addEventListener("click", () => chooseTab(tab));
    tab.addEventListener("keydown", (event) => {
      const other = { ArrowRight: tab.nextElementSibling, ArrowLeft: tab.previousElementSibling }[event.key];
      if (other) { other.focus(); chooseTab(other); }
    });
  }
}

async function start() {
  dress();
  fill(find("new-chat"), icon("plus"));
  fill(find("export"), icon("export"));
  fill(find("delete"), icon("trash"));
  writing();
  listen();
  await tried("The server did not answer", () => location.reload(), async () => {
    const users = await all("api/users", {}); // asks for a key where one is needed
    state.status = await get("api/status");
    picture = new ContextPicture({ jump, changed: look }, state.status);
    find("server-name").textContent = `Backscroll ${state.status.version}`;
    noModel();
    writing();
    hint();
    const names = users.map((one) => one.user);
    const wanted = new URLSearchParams(location.hash.slice(1)).get("user") || (names.includes(DEFAULT_USER) ? DEFAULT_USER : names[0] || DEFAULT_USER);
    state.user = wanted;
    fill(find("user"), ...[...new Set([wanted, ...names])].sort().map((name) => make("option", { value: name }, name)));
    find("user-choice").hidden = names.length < 2;
    await visit(wanted);
    if (!new URLSearchParams(location.hash.slice(1)).has("thread")) {
      const first = threads.items.find((one) => !one.parent);
      window.history.replaceState(null, "", `#${new URLSearchParams({ user: wanted, ...(first ? { thread: first.thread } : {}) })}`);
    }
    await arrive();
  });
}

function noModel() {
  const notice = find("no-model");
  notice.hidden = hasModel();
  if (hasModel()) return;
  prompt.placeholder = "Ask, to see what a model would get";
  fill(notice, make("strong", {}, "No language model is connected. "),
    "You can look at what one would see. To get replies, start the server with one: ",
    make("code", {}, "backscroll serve --llm openai:MODEL"), ", or with ", make("code", {}, "--llm openai:MODEL@http://localhost:11434/v1"), " for a model on this machine.");
}

start();
