// The server's /api. A problem of the server's, or one on the way to it, is a Problem.

const KEY = "backscroll key";

export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail || title);
    this.status = status;
    this.title = title;
    this.detail = detail;
  }
}

export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const forgetKey = () => sessionStorage.removeItem(KEY);

let askForKey = async () => { throw new Problem(401, "A key is needed", "This server asks for a key."); };
export const onKeyNeeded = (ask) => { askForKey = ask; };

async function ask(method, path, query, body, signal) {
  const given = Object.entries(query || {}).filter(([, value]) => value !== null && value !== undefined);
  const address = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(address, { method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The server cannot be reached", "Is it still running? What you wrote is kept here.");
  }
  if (response.ok) return response;
  if (response.status === 401) {
    await askForKey(key ? "This key is not one of the server's." : "");
    return ask(method, path, query, body, signal);
  }
  throw await problem(response);
}

async function problem(response) {
  const told = await response.json().catch(() => ({}));
  const detail = typeof told.detail === "string" ? told.detail : `The server answered ${response.status}.`;
  return new Problem(response.status, told.title || "That did not work", detail.charAt(0).toUpperCase() + detail.slice(1));
}

export async function get(path, query, signal) {
  return (await ask("GET", path, query, undefined, signal)).json();
}

export async function send(method, path, query, body, signal) {
  return (await ask(method, path, query, body, signal)).json();
}

export async function download(path, query) {
  return (await ask("GET", path, query)).blob();
}

// The items of a list that comes in pages.
export async function all(path, query, most = Infinity) {
  const items = [];
  let cursor = null;
  do {
    const page = await get(path, { ...query, limit: 200, cursor });
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < most);
  return items;
}

// The events of a stream, as they come: {event, data}.
export async function* events(path, query, body, signal) {
  const response = await ask("POST", path, query, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const event = parsed(block);
        if (event) yield event;
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Problem) throw error;
    throw new Problem(0, "The connection broke", "The reply did not come to its end.");
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  let name = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return data.length ? { event: name, data: JSON.parse(data.join("\n")) } : null;
}
