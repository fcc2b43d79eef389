// The other two views of the context: the messages as they are sent, and the figures over the chat.

import { get } from "./api.js";
import { chart } from "./charts.js";
import { fill, find, icon, make, tell } from "./dom.js";
import { compact, count, number, percent } from "./words.js";

const MOST_POINTS = 160; // of a series: more are thinned, the first and the last stay

export function drawSent(made) {
  const place = find("sent");
  if (!made) return fill(place, make("p", { class: "none muted" }, "Nothing to send yet."));
  const copy = () => navigator.clipboard.writeText(JSON.stringify(made.messages, null, 2)).then(() => tell("Copied"), () => tell("Could not copy"));
  return fill(place,
    make("div", { class: "row spread" },
      make("p", { class: "muted small" }, `${count(made.messages.length, "message")}, exactly as a model gets them`),
      make("button", { class: "plain small", type: "button", onclick: copy }, icon("copy"), "Copy as JSON")),
    ...made.messages.map((message) => make("section", { class: "sent" },
      make("h3", { class: "label" }, [message.role, message.name].filter(Boolean).join(" · ")),
      make("pre", { tabindex: "0", role: "region", "aria-label": `${message.role}, as sent` }, make("code", {}, shown(message))))));
}

function shown(message) {
  const { role, name, content, ...others } = message;
  const text = typeof content === "string" ? content : content === null || content === undefined ? "" : JSON.stringify(content, null, 2);
  return [text, Object.keys(others).length ? JSON.stringify(others, null, 2) : ""].filter(Boolean).join("\n");
}

export async function drawTime(user, thread, signal) {
  const place = find("time");
  const turns = [];
  let before = null;
  do {
    const page = await get("api/turns", { user, thread, limit: 200, before }, signal);
    turns.unshift(...page.items);
    before = page.next;
  } while (before && turns.length < 2000);
  if (!turns.length) {
    fill(place, make("p", { class: "none muted" }, "No replies in this thread yet. Each one adds what it was sent, and how long it took."));
    return;
  }
  const sent = turns.filter((turn) => turn.tokens_sent !== null);
  const waits = turns.filter((turn) => turn.latency_ms !== null);
  const open = [...place.querySelectorAll("details")].map((details) => details.open); // drawn anew behind every reply
  fill(place, ...figures(sent, waits, turns),
    chart({ title: "Tokens: sent, and of the full history", unit: "tokens", series: [
      { name: "full history", part: "full", isArea: true, points: thinned(turns.map((turn) => [turn.position, turn.tokens_full])) },
      { name: "sent", part: "sent-line", isDots: sent.length < 3, points: thinned(sent.map((turn) => [turn.position, turn.tokens_sent])) },
    ] }),
    waits.length > 0 && chart({ title: "Time until the reply was whole", unit: "milliseconds", format: seconds, series: [
      { name: "latency, milliseconds", part: "latency", isDots: true, points: thinned(waits.map((turn) => [turn.position, turn.latency_ms])) },
    ] }),
    !sent.length && make("p", { class: "notice" }, "These lines were stored without a reply made here, so nothing is known of what was sent for them."));
  [...place.querySelectorAll("details")].forEach((details, number) => { details.open = open[number] ?? false; });
}

function figures(sent, waits, turns) {
  const full = sent.reduce((total, turn) => total + turn.tokens_full, 0);
  const used = sent.reduce((total, turn) => total + turn.tokens_sent, 0);
  const sorted = waits.map((turn) => turn.latency_ms).sort((a, b) => a - b);
  const at = (share) => seconds(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]);
  const saved = full > used;
  return [make("dl", { class: "figures" },
    figure("Tokens of the history now", compact(turns.at(-1).tokens_full)),
    sent.length > 0 && figure("Sent for the last reply", compact(sent.at(-1).tokens_sent)),
    sent.length > 0 && saved && figure("Saved against resending all", percent(full - used, full)),
    sorted.length > 0 && figure("Latency p50, p95", `${at(0.5)}, ${at(0.95)}`))];
}

const figure = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));

function seconds(milliseconds) {
  if (milliseconds < 1000) return `${number(milliseconds)} ms`;
  return `${(milliseconds / 1000).toFixed(milliseconds < 9950 ? 1 : 0)} s`;
}

function thinned(points) {
  if (points.length <= MOST_POINTS) return points;
  const step = (points.length - 1) / (MOST_POINTS - 1);
  return Array.from({ length: MOST_POINTS }, (_, i) => points[Math.round(i * step)]);
}
