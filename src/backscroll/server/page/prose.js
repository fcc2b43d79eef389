// A message's text as paragraphs, code and emphasis: all of them elements around text, never HTML.

import { make } from "./dom.js";

const FENCE = /^[ \t]*(`{3,}|~{3,})([^\n`]*)\n([\s\S]*?)(?:\n?^[ \t]*\1[ \t]*$|(?![\s\S]))/m;
const INLINE = /(`+)([^`\n](?:[^\n]*?[^`\n])?)\1(?!`)|\*\*([^\s*](?:[^\n*]*[^\s*])?)\*\*/;

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

function inline(text) {
  const parts = [];
  let rest = text;
  for (let found = INLINE.exec(rest); found; found = INLINE.exec(rest)) {
    parts.push(rest.slice(0, found.index));
    parts.push(found[2] !== undefined ? make("code", {}, found[2]) : make("strong", {}, found[3]));
    rest = rest.slice(found.index + found[0].length);
  }
  return [...parts, rest];
}
