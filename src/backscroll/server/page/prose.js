// A message's text as paragraphs, code and emphasis: all of them elements around text, never HTML.

import { make } from "./dom.js";

const FENCE = /^[ \t]*(`{3,}|~{3,})([^\n`]*)\n([\s\S]*?)(?:\n?^[ \t]*\1[ \t]*$|(?![\s\S]))/m;
const INLINE = /(`+)([^`\n](?:[^\n]*?[^`\n])?)\1(?!`)|\*\*([^\s*](?:[^\n*]*[^\s*])?)\*\*/;
const LONG_LINE = 10000;

export function prose(text) {
  const parts = [];
  let rest = text;
  for (let found = FENCE.exec(rest); found && found[0]; found = FENCE.exec(rest)) {
    parts.push(...paragraphs(rest.slice(0, found.index)), code(found[3], found[2].trim()));
    rest = rest.slice(found.index + found[0].length);
  }
  return [...parts, ...paragraphs(rest)];
}

function code(text, language) {
  return make("pre", { tabindex: "0", role: "region", "aria-label": language ? `Code, ${language}` : "Code" },
    language && make("span", { class: "language" }, language), make("code", {}, text));
}

function paragraphs(text) {
  const trimmed = text.replace(/^\s*\n|\s+$/g, "");
  return trimmed ? trimmed.split(/\n{2,}/).map((one) => make("p", { dir: "auto" }, inline(one))) : [];
}

// Line by line, as neither code nor emphasis goes over a line's end; a very long line stays plain, since looking for
// their ends takes time by the square of its length.
function inline(text) {
  return text.split(/(?<=\n)/).flatMap((line) => line.length < LONG_LINE ? marked(line) : [line]);
}

function marked(line) {
  const parts = [];
  let rest = line;
  for (let found = INLINE.exec(rest); found; found = INLINE.exec(rest)) {
    parts.push(rest.slice(0, found.index));
    parts.push(found[2] !== undefined ? make("code", {}, found[2]) : make("strong", {}, found[3]));
    rest = rest.slice(found.index + found[0].length);
  }
  return [...parts, rest];
}
