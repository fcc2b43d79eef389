// Lines over the chat, drawn as SVG, with the same figures as a table for those who read them.

import { make, svg } from "./dom.js";
import { compact, number } from "./words.js";

const WIDTH = 340;
const HEIGHT = 150;
const EDGE = { left: 40, right: 10, top: 10, bottom: 22 };
const STEPS = [1, 2, 5];

// A figure of several series over the positions of a chat.
//   series: [{name, part, points: [[position, value], …], isArea, isDots}]
export function chart({ title, unit, series, format = compact }) {
  const points = series.flatMap((one) => one.points);
  const last = Math.max(1, ...points.map(([position]) => position));
  const ticks = scale(Math.max(1, ...points.map(([, value]) => value)));
  const top = ticks.at(-1);
  const x = (position) => EDGE.left + ((WIDTH - EDGE.left - EDGE.right) * position) / last;
  const y = (value) => HEIGHT - EDGE.bottom - ((HEIGHT - EDGE.top - EDGE.bottom) * value) / top;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": summary(title, unit, series) },
    ...ticks.map((tick) => svg("g", {},
      svg("line", { class: "grid", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: EDGE.left - 6, y: y(tick) + 3.5, "text-anchor": "end" }, format(tick)))),
    svg("text", { x: EDGE.left, y: HEIGHT - 6 }, "line 0"),
    svg("text", { x: WIDTH - EDGE.right, y: HEIGHT - 6, "text-anchor": "end" }, `line ${number(last)}`),
    ...series.filter((one) => one.points.length).map((one) => drawn(one, x, y)));
  const key = make("p", { class: "key" }, ...series.map((one) => make("span", {}, make("i", { class: `swatch ${one.part}` }), one.name)));
  return make("figure", { class: "figure" }, make("figcaption", {}, title), series.length > 1 && key, picture, table(title, series));
}

function drawn(one, x, y) {
  const line = one.points.map(([position, value], i) => `${i ? "L" : "M"}${x(position).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const [first, last] = [one.points[0], one.points.at(-1)];
  const dots = one.isDots || one.points.length === 1;
  return svg("g", { class: `series ${one.part}` },
    one.isArea && svg("path", { class: "area", d: `${line}L${x(last[0]).toFixed(1)} ${y(0)}L${x(first[0]).toFixed(1)} ${y(0)}Z` }),
    !dots && svg("path", { class: "stroke-line", d: line }),
    dots && one.points.map(([position, value]) => svg("circle", { cx: x(position).toFixed(1), cy: y(value).toFixed(1), r: 2.2 })));
}

function scale(most) {
  const rough = most / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = (STEPS.find((one) => one * power >= rough) ?? 10) * power;
  const ticks = [0];
  while (ticks.at(-1) < most) ticks.push(ticks.length * step);
  return ticks;
}

function summary(title, unit, series) {
  const told = series.filter((one) => one.points.length)
    .map((one) => `${one.name}: ${number(one.points.at(-1)[1])} ${unit} at the end, at most ${number(Math.max(...one.points.map(([, value]) => value)))}`);
  return `${title}. ${told.join("; ")}.`;
}

function table(title, series) {
  const places = [...new Set(series.flatMap((one) => one.points.map(([position]) => position)))].sort((a, b) => a - b);
  const values = series.map((one) => new Map(one.points));
  return make("details", { class: "folded" }, make("summary", {}, "As a table"),
    make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `${title}, as a table` },
      make("table", {},
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Line"), ...series.map((one) => make("th", { scope: "col" }, one.name)))),
        make("tbody", {}, ...places.map((place) => make("tr", {}, make("th", { scope: "row" }, number(place)),
          ...values.map((one) => make("td", {}, one.has(place) ? number(one.get(place)) : "–"))))))));
}
