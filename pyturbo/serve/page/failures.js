// What went wrong, in plain words.

import { settings } from "./settings.js";

/** An answer that is no reply. `kind` is "key", "busy", "away" or "other"; `wait` is in seconds where it is known. */
export class Failure extends Error {
  constructor(kind, words, wait = null) {
    super(words);
    this.kind = kind;
    this.wait = wait;
  }
}

/** The failure that a response with a status of 400 or more tells about. */
export async function failureOf(response) {
  const said = await detail(response);
  const wait = secondsOf(response.headers.get("Retry-After"));
  switch (response.status) {
    case 401:
      return new Failure("key", `The server wants an API key${settings.key ? ", and did not accept this one" : ""}.`);
    case 404:
      return new Failure("other", said || "The server does not have this model.");
    case 413:
      return new Failure("other", said || "The conversation is too long for the server.");
    case 429:
      return new Failure("busy", "The server has too much to do.", wait);
    case 503:
      return new Failure("busy", `The server cannot reply now: ${said || "it is starting, ending, or full"}.`, wait);
    default:
      return new Failure("other", said || `The server answered with the status ${response.status}.`, wait);
  }
}

/** The failure of a request that got no response. */
export function unreachable() {
  return new Failure("away", "The server cannot be reached. It may have ended, or the network is gone.");
}

/** The failure of a stream that ended too early. */
export function brokenOff() {
  return new Failure("away", "The connection broke off before the reply was complete.");
}

/** The failure that an event `{"error": ...}` of a stream tells about. */
export function failureInStream(error) {
  return new Failure("other", `The server could not finish the reply: ${messageOf(error) || "it does not say why."}`);
}

async function detail(response) {
  try {
    return messageOf((await response.json()).error);
  } catch {
    return "";
  }
}

function messageOf(error) {
  const message = typeof error === "string" ? error : error?.message;
  return typeof message === "string" ? message : "";
}

/** Retry-After is a number of seconds, or a date. */
function secondsOf(header) {
  if (!header) return null;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, Math.ceil(seconds)) : null;
}
