// Elements made by calls. Text is set as text; nothing here, nor anywhere else on the page, reads text as HTML.

const SVG = "http://www.w3.org/2000/svg";

// make("button", {class: "quiet", type: "button", onclick: go}, "Go") -> a button
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export const find = (id) => document.getElementById(id);

export function fill(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const STROKES = {
  plus: ["M12 5v14", "M5 12h14"],
  send: ["M12 19V5", "M6 11l6-6 6 6"],
  stop: ["M7 7h10v10H7z"],
  pin: ["M9 4h6l-1 6 3 3H7l3-3z", "M12 13v7"],
  copy: ["M9 9h10v10H9z", "M5 15V5h10"],
  edit: ["M5 19l1-4L16 5l3 3L9 18z"],
  retry: ["M19 12a7 7 0 1 1-2-5", "M19 4v4h-4"],
  trash: ["M5 7h14", "M9 7V4h6v3", "M7 7l1 13h8l1-13"],
  export: ["M12 4v11", "M7 10l5 5 5-5", "M5 20h14"],
  sun: ["M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8", "M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5"],
  moon: ["M19 14A8 8 0 0 1 10 5a7.5 7.5 0 1 0 9 9z"],
  screen: ["M4 5h16v11H4z", "M9 20h6M12 16v4"],
  branch: ["M7 4v16", "M7 12c6 0 10-1 10-6"],
};

export function icon(name) {
  const lines = STROKES[name].map((d) => svg("path", { d }));
  return svg("svg", { viewBox: "0 0 24 24", class: name === "stop" ? "stroke filled" : "stroke", "aria-hidden": "true" }, lines);
}

// A function that waits until nobody has called it for a while.
export function debounced(milliseconds, call) {
  let timer = 0;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

let telling = 0;

// Say something to those who listen to the page instead of looking at it.
export function tell(text) {
  const place = find("told");
  place.textContent = "";
  clearTimeout(telling);
  telling = setTimeout(() => { place.textContent = text; }, 60);
}

export function toast(title, detail = "", again = null) {
  const close = () => box.remove();
  const box = make("div", { class: "toast" },
    make("div", {}, make("strong", {}, title), detail && make("p", {}, detail)),
    again && make("button", { class: "plain", type: "button", onclick: () => { close(); again(); } }, "Try again"),
    make("button", { class: "quiet", type: "button", onclick: close, "aria-label": "Dismiss" }, "×"),
  );
  const toasts = find("toasts");
  while (toasts.children.length > 2) toasts.firstChild.remove();
  toasts.append(box);
  if (!again) setTimeout(close, 12000);
}
