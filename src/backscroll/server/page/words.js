// Numbers, days and texts as people read them.

const whole = new Intl.NumberFormat("en");
const dayAndYear = new Intl.DateTimeFormat("en", { day: "numeric", month: "long", year: "numeric" });
const shortDay = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", year: "numeric" });
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hour12: false });
const ago = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "narrow" });

export const number = (value) => whole.format(Math.round(value));
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;
export const day = (time) => dayAndYear.format(new Date(time));
export const date = (time) => shortDay.format(new Date(time));
export const hour = (time) => clock.format(new Date(time));

export function compact(value) {
  if (value < 10000) return number(value);
  return value < 1e6 ? `${(value / 1000).toFixed(value < 1e5 ? 1 : 0)}k` : `${(value / 1e6).toFixed(1)}M`;
}

export const cosine = (value) => (Math.abs(value) < 0.005 ? 0 : value).toFixed(2);

export function percent(part, of) {
  const share = of ? (100 * part) / of : 0;
  return share > 0 && share < 1 ? "<1%" : `${Math.round(share)}%`;
}

export function since(time) {
  const seconds = (Date.now() - new Date(time)) / 1000;
  if (seconds < 60) return "now";
  if (seconds < 3600) return ago.format(-Math.floor(seconds / 60), "minute");
  if (seconds < 86400) return ago.format(-Math.floor(seconds / 3600), "hour");
  if (seconds < 7 * 86400) return ago.format(-Math.floor(seconds / 86400), "day");
  return date(time);
}

export function short(text, length) {
  const flat = text.replace(/\s+/g, " ").trim();
  return flat.length > length ? `${flat.slice(0, length - 1).trimEnd()}…` : flat;
}

// A thread's title: the first words said in it, cut by the server at 80 characters.
export const titled = (info) => (info.title.length < 80 ? info.title : `${info.title.replace(/\s+\S*$/, "")}…`) || info.thread;

// The words of a query that are worth marking in what it found.
export function marking(query) {
  const words = (query.match(/[\p{L}\p{N}]{3,}/gu) || []).map((word) => word.replace(/[$()*+.?[\\\]^{|}]/g, "\\$&"));
  return words.length ? new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|")})[\\p{L}\\p{N}]{0,3}`, "giu") : null;
}
