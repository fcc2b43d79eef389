// Replies that are on their way. Each goes on while one looks at another thread.

import { Problem, events, get } from "./api.js";

const STORED_AFTER = [150, 500, 1500, 3000]; // milliseconds to wait for a reply that was stopped to be stored

export class Replies {
  // acts: {more(reply, piece), over(reply, failure)}
  constructor(acts) {
    this.acts = acts;
    this.going = new Map();
  }

  // The reply that is on its way in a thread, or undefined.
  in(user, thread) {
    return this.going.get(JSON.stringify([user, thread]));
  }

  // Ask for a reply: text is the prompt, null where what is stored is to be answered; last the thread's last position.
  async begin({ user, thread, text, last, maxTokens, scope }) {
    const reply = { user, thread, text, last, said: "", stopping: new AbortController() };
    const name = JSON.stringify([user, thread]);
    this.going.set(name, reply);
    const prompt = text === null ? null : { role: "user", content: text, id: crypto.randomUUID() };
    const body = { prompt, max_tokens: maxTokens, scope, now: new Date().toISOString(), stream: true };
    let failure = null;
    try {
      for await (const { event, data } of events("api/reply", { user, thread }, body, reply.stopping.signal)) {
        if (event === "error") throw new Problem(data.status, data.title, data.detail);
        if (event === "delta") {
          reply.said += data.text;
          this.acts.more(reply, data.text);
        }
      }
    } catch (error) {
      failure = error;
    }
    if (isStop(failure)) await stored(reply);
    this.going.delete(name);
    await this.acts.over(reply, failure);
  }

  stop(user, thread) {
    this.in(user, thread)?.stopping.abort();
  }
}

export const isStop = (failure) => failure?.name === "AbortError";

// Wait until what came of a reply is stored: the server hears of the stop with the model's next word.
async function stored({ user, thread, last, said }) {
  for (const wait of said ? STORED_AFTER : []) {
    await new Promise((resolve) => { setTimeout(resolve, wait); });
    const page = await get("api/messages", { user, thread, after: last, limit: 1 }).catch(() => null);
    if (page === null || (page.last ?? -1) > (last ?? -1)) return;
  }
}
