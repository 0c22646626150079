// The requests that the page makes. Paths are relative, so that the page also works below a prefix.

import { readEvents } from "./events.js";
import { brokenOff, failureInStream, failureOf, unreachable } from "./failures.js";
import { settings } from "./settings.js";

/** The names of the models that the server has. */
export async function fetchModels() {
  const response = await request("v1/models");
  return (await response.json()).data.map((model) => model.id);
}

/** The figures of the server, as Prometheus text. */
export async function fetchMetrics() {
  return (await request("metrics")).text();
}

/**
 * Yield `{chunk}` for each chunk of a reply, and `{progress: [read, all]}` while the prompt is read. Ends when the
 * reply is complete and throws a `Failure` when it is not; `signal` aborts the request.
 */
export async function* streamReply(body, signal) {
  const options = { stream: true, stream_options: { include_usage: true } };
  const response = await request("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, ...options }),
    signal,
  });
  let complete = false;
  try {
    for await (const { data, comment } of readEvents(response.body)) {
      const progress = comment?.match(/^prompt (\d+)\/(\d+)$/);
      if (progress) yield { progress: progress.slice(1).map(Number) };
      if (data === "[DONE]") return;
      if (data === undefined) continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw failureInStream(chunk.error);
      complete ||= Boolean(chunk.choices?.[0]?.finish_reason);
      yield { chunk };
    }
  } catch (error) {
    if (error instanceof TypeError || error instanceof SyntaxError) throw brokenOff();
    throw error;
  }
  if (!complete) throw brokenOff();
}

async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (settings.key) headers.Authorization = `Bearer ${inUtf8(settings.key)}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    throw error.name === "AbortError" ? error : unreachable();
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

/** A text as headers take it: each byte of its UTF-8 as one character. */
function inUtf8(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
