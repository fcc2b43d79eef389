// The context as a picture: what of the budget each part takes, every line in it and why, and what a change would do.

import { send } from "./api.js";
import { fill, find, make, svg, tell } from "./dom.js";
import { compact, cosine, count, date, number, percent, short } from "./words.js";

export const PARTS = ["anchors", "summary", "recalled", "window", "prompt"];
const ALL = [...PARTS, "tools", "frame"]; // frame: roles, fences, dates
const ABOUT = {
  anchors: "in every context: system prompt, pins",
  summary: "what scrolled away, in short",
  recalled: "old lines that matter now",
  window: "the newest lines",
  prompt: "your message",
  tools: "schemas of tools",
  frame: "roles, fences, dates",
  free: "not used",
};
const LEAST = 128; // tokens, at the left end of the slider
const STEPS = 400; // of the slider
const SHOWN = 24; // blocks or lines at first
const NUMBERS_WIDE = 0.07; // of the bar from which on a part has room for its name

export class ContextPicture {
  // acts: {jump(source), changed()}; status: of the server
  constructor(acts, status) {
    this.acts = acts;
    this.status = status;
    this.defaults = { maxTokens: status.max_tokens, preset: status.default_preset, scope: "user" };
    this.chosen = { ...this.defaults };
    this.most = Math.max(32000, 2 ** Math.ceil(Math.log2(4 * status.max_tokens)));
    this.place = find("picture");
    this.controls = this.drawnControls();
    this.shown = make("div", { class: "shown" });
    fill(this.place, this.controls, this.shown);
  }

  isChanged() {
    return Object.keys(this.defaults).some((name) => this.chosen[name] !== this.defaults[name]);
  }

  // Ask for the context of a prompt, beside the one by the server's own settings where others are chosen.
  async ask(user, thread, prompt) {
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const one = ({ maxTokens, preset, scope }) => send("POST", "api/context", { user, thread },
      { prompt, max_tokens: maxTokens, preset: preset === "custom" ? null : preset, scope, now: new Date().toISOString() }, signal);
    this.place.setAttribute("aria-busy", "true");
    if (!this.shown.firstChild) fill(this.shown, make("p", { class: "none muted" }, "Putting it together…"));
    try {
      const [made, usual] = await Promise.all([one(this.chosen), this.isChanged() ? one(this.defaults).catch(onlyAborts) : null]);
      if (signal.aborted) return null;
      this.made = made;
      this.usual = usual;
      this.draw();
      return made;
    } catch (error) {
      if (error.name === "AbortError") return null;
      this.made = null;
      this.failed(error);
      return undefined;
    } finally {
      if (!signal.aborted) this.place.removeAttribute("aria-busy");
    }
  }

  nothing(text) {
    this.asking?.abort();
    this.made = null;
    this.place.removeAttribute("aria-busy");
    fill(this.shown, make("p", { class: "none muted" }, text));
  }

  // The part of each line that is in the context: id -> part.
  parts() {
    const inside = (this.made?.report.entries || []).filter((entry) => entry.included && entry.source);
    return new Map(inside.map((entry) => [entry.source.id, entry.part]));
  }

  failed(error) {
    const needed = /need (\d+) tokens/.exec(error.message);
    fill(this.shown, make("div", { class: "notice bad", role: "alert" },
      make("strong", {}, error.status === 413 ? "It does not fit" : error.title || "No context"),
      make("p", {}, error.message),
      needed && make("button", { class: "plain", type: "button", onclick: () => this.choose({ maxTokens: Number(needed[1]) }) },
        `Set ${number(Number(needed[1]))} tokens`)));
  }

  choose(changes) {
    Object.assign(this.chosen, changes);
    this.isTold = true; // what changes by writing is not told at every word
    this.sync();
    this.acts.changed();
  }

  drawnControls() {
    this.slider = make("input", { id: "budget", type: "range", min: 0, max: STEPS, step: 1,
      oninput: () => this.choose({ maxTokens: this.tokensAt(Number(this.slider.value)) }) });
    this.exact = make("input", { id: "budget-exact", type: "number", min: 1, step: 1, inputmode: "numeric", "aria-label": "max_tokens, exactly",
      onchange: () => { if (this.exact.value >= 1) this.choose({ maxTokens: Math.round(Number(this.exact.value)) }); else this.sync(); } });
    this.presets = make("select", { id: "preset", onchange: () => this.choose({ preset: this.presets.value }) },
      ...this.presetNames().map((name) => make("option", { value: name }, name)));
    this.scopes = make("select", { id: "scope", onchange: () => this.choose({ scope: this.scopes.value }) },
      make("option", { value: "user" }, "all threads"), make("option", { value: "thread" }, "this thread"));
    this.back = make("button", { class: "plain small", type: "button", onclick: () => this.choose({ ...this.defaults }) }, "Back to the server's");
    this.usedBy = make("p", { class: "muted small" });
    const controls = make("div", { class: "controls" },
      make("div", { class: "control wide" }, make("label", { for: "budget" }, make("code", {}, "max_tokens")), this.exact, this.slider),
      make("div", { class: "control" }, make("label", { for: "preset" }, "Preset"), this.presets),
      make("div", { class: "control" }, make("label", { for: "scope" }, "Recall from"), this.scopes),
      make("div", { class: "row spread" }, this.usedBy, this.back));
    this.sync();
    return controls;
  }

  presetNames() {
    const names = this.status.presets.map((preset) => preset.name);
    return names.includes(this.defaults.preset) ? names : [this.defaults.preset, ...names];
  }

  sync() {
    const { maxTokens, preset, scope } = this.chosen;
    this.slider.value = String(Math.round((STEPS * Math.log(maxTokens / LEAST)) / Math.log(this.most / LEAST)));
    this.slider.setAttribute("aria-valuetext", count(maxTokens, "token"));
    this.exact.value = String(maxTokens);
    this.presets.value = preset;
    this.scopes.value = scope;
    this.back.hidden = !this.isChanged();
    const reply = `Replies use ${number(maxTokens)} tokens`;
    this.usedBy.textContent = !this.status.has_model ? ""
      : preset === this.defaults.preset ? `${reply}.` : `${reply} and the preset ${this.defaults.preset}; ${preset} is a preview.`;
  }

  tokensAt(step) {
    const exact = LEAST * (this.most / LEAST) ** (step / STEPS);
    const unit = 10 ** Math.max(0, Math.floor(Math.log10(exact)) - 1);
    return Math.min(this.most, Math.max(LEAST, Math.round(exact / unit) * unit));
  }

  draw() {
    const { report, tokens, max_tokens: most } = this.made;
    const open = new Set([...this.shown.querySelectorAll("details[open]")].map((one) => one.dataset.name));
    const shut = new Set([...this.shown.querySelectorAll("details:not([open])")].map((one) => one.dataset.name));
    fill(this.shown,
      make("p", { class: "total" }, make("strong", {}, number(tokens)), make("span", { class: "muted" }, ` of ${number(most)} tokens, ${percent(tokens, most)}`)),
      bar(sizes(this.made), most),
      this.usual && usually(this.usual, most),
      legend(sizes(this.made), most, this.usual && sizes(this.usual)),
      ...report.notes.map((note) => make("p", { class: "notice" }, note)),
      this.usual && this.change(),
      this.recalled(report), this.summary(report),
      this.lines("anchors", "Anchors", report), this.lines("window", "Window", report), this.lines("prompt", "Prompt", report),
      this.leftOut(report),
      make("p", { class: "muted small" }, `Counted as ${report.counter}; found by ${report.embedder}.`,
        report.query ? ` Searched for “${short(report.query, 120)}”.` : ""));
    for (const details of this.shown.querySelectorAll("details")) {
      if (open.has(details.dataset.name)) details.open = true;
      if (shut.has(details.dataset.name)) details.open = false;
    }
    if (this.isTold) tell(`The context has ${number(tokens)} of ${number(most)} tokens`);
    this.isTold = false;
  }

  recalled(report) {
    const blocks = grouped(report.entries.filter((entry) => entry.part === "recalled" && entry.included));
    blocks.sort((one, other) => other[0].similarity - one[0].similarity);
    return section("recalled", "Recalled", blocks.length ? `${count(blocks.length, "block")}, nearest first` : "nothing", true,
      blocks.length ? some(blocks, (block) => this.block(block)) : [make("p", { class: "none muted" }, this.chosen.preset === "sliding_window" ? "This preset recalls nothing." : "No older line is near enough to what is asked.")]);
  }

  block(entries) {
    const [first] = entries;
    const last = entries.at(-1);
    const where = first.source.position === last.source.position ? `#${first.source.position}` : `#${first.source.position}–${last.source.position}`;
    const thread = first.source.thread;
    return make("button", { class: "block", type: "button", onclick: () => this.acts.jump(first.source),
      "aria-label": `Recalled from ${thread} ${where}, ${date(first.created_at)}, similarity ${similarity(first)}: ${short(first.text, 80)}. Show it in the history.` },
    make("span", { class: "block-head" },
      make("span", { class: "near", title: "Similarity: the cosine between what is asked and the best line" }, near(first.similarity), similarity(first)),
      make("span", { class: "grow" }, date(first.created_at)),
      make("span", {}, count(sum(entries), "token"))),
    ...entries.map((entry) => make("span", { class: "said" }, make("b", {}, `${entry.speaker}: `), short(entry.text, 180))),
    make("span", { class: "why" }, `${short(thread, 40)} ${where}`, first.why === "found" ? "" : ` · ${first.why}`));
  }

  summary(report) {
    const told = report.entries.filter((entry) => entry.part === "summary" && entry.included);
    if (!told.length) return null;
    return section("summary", "Summary", count(sum(told), "token"), false,
      told.map((entry) => make("div", { class: "entry" }, make("p", { class: "why" }, entry.why), make("p", {}, entry.text))));
  }

  lines(part, title, report) {
    const entries = report.entries.filter((entry) => entry.part === part && entry.included);
    if (!entries.length) return null;
    return section(part, title, `${count(entries.length, "line")}, ${count(sum(entries), "token")}`, false, some(entries, (entry) => this.entry(entry)));
  }

  entry(entry) {
    const inside = [
      make("span", { class: "said" }, make("b", {}, `${entry.speaker}: `), short(entry.text, 160) || "…"),
      make("span", { class: "why" }, [entry.source && `#${entry.source.position}`, entry.created_at && date(entry.created_at), count(entry.tokens, "token"),
        entry.similarity !== null && `similarity ${similarity(entry)}`, entry.why].filter(Boolean).join(" · ")),
    ];
    return entry.source
      ? make("button", { class: "entry", type: "button", onclick: () => this.acts.jump(entry.source) }, ...inside)
      : make("div", { class: "entry" }, ...inside);
  }

  leftOut(report) {
    const out = report.entries.filter((entry) => !entry.included);
    return section("out", "Left out", out.length ? `nearest ${count(out.length, "line")}` : "nothing", false,
      out.length ? out.map((entry) => this.entry(entry)) : [make("p", { class: "none muted" }, "Nothing that was looked at was left out.")]);
  }

  // What would come in, go out or take another place.
  change() {
    const now = placed(this.made);
    const usual = placed(this.usual);
    const came = [...now.values()].filter((entry) => !usual.has(entry.source.id));
    const went = [...usual.values()].filter((entry) => !now.has(entry.source.id));
    const moved = [...now.values()].filter((entry) => usual.has(entry.source.id) && usual.get(entry.source.id).part !== entry.part);
    const list = (kind, sign, entries) => entries.length > 0 && make("ul", { class: kind }, ...entries.slice(0, 12).map((entry) => make("li", {},
      make("button", { class: "entry", type: "button", onclick: () => this.acts.jump(entry.source) },
        make("span", { class: "sign", "aria-label": kind }, sign), make("span", { class: `swatch ${entry.part}` }),
        make("span", { class: "said" }, short(`${entry.speaker}: ${entry.text}`, 90))))),
    entries.length > 12 && make("li", { class: "muted small" }, `and ${number(entries.length - 12)} more`));
    const told = [came.length && `${number(came.length)} come in`, went.length && `${number(went.length)} go out`, moved.length && `${number(moved.length)} take another place`];
    return section("change", "What changes", told.filter(Boolean).join(", ") || "the same lines", true,
      [list("comes in", "+", came), list("goes out", "−", went), list("moves", "→", moved)].filter(Boolean));
  }
}

// A small bar of the parts, for where there is room for no more.
export function smallBar(made) {
  return bar(sizes(made), made.max_tokens, true);
}

export const told = (made) => `${compact(made.tokens)} / ${compact(made.max_tokens)}`;

function sizes(made) {
  const { parts, tools_tokens: tools } = made.report;
  const named = PARTS.reduce((total, part) => total + parts[part], 0);
  return { ...parts, tools, frame: Math.max(0, made.tokens - named - tools) };
}

// The stacked bar, drawn so that widths are figures and no style is written.
function bar(size, most, isSmall = false) {
  const height = isSmall ? 8 : 34;
  const width = 400;
  const told = ALL.filter((part) => size[part]).map((part) => `${part} ${number(size[part])}`);
  const used = ALL.reduce((total, part) => total + size[part], 0);
  let left = 0;
  const pieces = ALL.filter((part) => size[part] > 0).map((part) => {
    const wide = (width * size[part]) / Math.max(most, used);
    const piece = svg("g", { class: `part ${part}` },
      svg("title", {}, `${part}: ${count(size[part], "token")}`),
      svg("rect", { x: left.toFixed(2), y: 0, width: wide.toFixed(2), height }),
      !isSmall && wide > NUMBERS_WIDE * width * 1.6 && svg("text", { x: (left + 6).toFixed(2), y: 21 }, part));
    left += wide;
    return piece;
  });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: isSmall ? "budget-bar small" : "budget-bar", preserveAspectRatio: "none",
    role: "img", "aria-label": `${told.join(", ")}, free ${number(Math.max(0, most - used))} of ${number(most)} tokens` },
  svg("rect", { class: "free", x: 0, y: 0, width, height }), ...pieces);
}

function usually(usual, most) {
  return make("div", { class: "usually" },
    make("p", { class: "muted small" }, `The server's own: ${number(usual.tokens)} of ${number(usual.max_tokens)} tokens, on the same scale`),
    bar(sizes(usual), Math.max(most, usual.tokens), true));
}

function legend(size, most, usual) {
  const free = Math.max(0, most - ALL.reduce((total, part) => total + size[part], 0));
  const rows = [...ALL.filter((part) => PARTS.includes(part) || size[part]).map((part) => [part, size[part]]), ["free", free]];
  return make("ul", { class: "legend", "aria-label": "Parts of the context" }, ...rows.map(([part, tokens]) => {
    const change = usual && part !== "free" ? tokens - (usual[part] || 0) : 0;
    return make("li", { class: tokens ? null : "zero" },
      make("i", { class: `swatch ${part}` }), make("span", { class: "name" }, part), make("span", { class: "about muted" }, ABOUT[part]),
      change !== 0 && make("span", { class: change > 0 ? "change up" : "change down" }, `${change > 0 ? "+" : "−"}${number(Math.abs(change))}`),
      make("span", { class: "figure-cell" }, number(tokens)));
  }));
}

function section(name, title, about, isOpen, inside) {
  return make("details", { class: "section", "data-name": name, open: isOpen },
    make("summary", {}, make("i", { class: `swatch ${name}` }), make("span", { class: "name" }, title), make("span", { class: "muted" }, about)),
    make("div", { class: "inside" }, ...inside));
}

// As many as one reads, and the rest when one asks for it.
function some(items, draw) {
  const rest = items.slice(SHOWN);
  const more = make("button", { class: "plain small", type: "button" }, `Show ${number(rest.length)} more`);
  more.addEventListener("click", () => {
    const drawn = rest.map(draw);
    more.parentElement.replaceWith(...drawn);
    drawn[0].focus();
  });
  return [...items.slice(0, SHOWN).map(draw), ...(rest.length ? [make("div", { class: "row" }, more)] : [])];
}

// Lines that stand next to each other in a thread are one block.
function grouped(entries) {
  const blocks = [];
  for (const entry of entries) {
    const block = blocks.at(-1);
    const last = block?.at(-1);
    const follows = last && last.source.thread === entry.source.thread && entry.source.position === last.source.position + 1 && last.similarity === entry.similarity;
    if (follows) block.push(entry);
    else blocks.push([entry]);
  }
  return blocks;
}

function placed(made) {
  return new Map(made.report.entries.filter((entry) => entry.included && entry.source).map((entry) => [entry.source.id, entry]));
}

function near(value) {
  return svg("svg", { viewBox: "0 0 40 6", class: "near-bar", "aria-hidden": "true" },
    svg("rect", { class: "free", width: 40, height: 6, rx: 3 }),
    svg("rect", { width: (40 * Math.max(0, Math.min(1, value ?? 0))).toFixed(1), height: 6, rx: 3 }));
}

const similarity = (entry) => (entry.similarity === null ? "–" : cosine(entry.similarity));
const sum = (entries) => entries.reduce((total, entry) => total + entry.tokens, 0);
const onlyAborts = (error) => { if (error.name === "AbortError") throw error; return null; };
