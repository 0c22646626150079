// One reply: the request, and the message that grows by what comes.

import { streamReply } from "./api.js";
import { Failure } from "./failures.js";
import { Meter } from "./meter.js";
import { requestOptions, settings } from "./settings.js";
import { tokensOf } from "./tokens.js";
import { pathTo } from "./tree.js";

/**
 * Write a reply into `message`, and call `changed()` after each change. The end is the state of the message: "done",
 * "length", "stopped" (by `signal`) or "failed", with what went wrong as `failure`.
 */
export async function writeReply(conversation, message, signal, changed) {
  const meter = new Meter();
  const last = { usage: null, timings: null, decoder: new TextDecoder() };
  Object.assign(message, { state: "writing", model: settings.model, thoughts: "", tokens: [] });
  const body = { model: settings.model, messages: promptOf(conversation, message), ...requestOptions() };
  changed();
  try {
    for await (const { chunk, progress } of streamReply(body, signal)) {
      if (progress) message.progress = progress;
      else grow(message, chunk, meter, last);
      message.figures = meter.figures(last.usage, last.timings);
      message.rates = meter.rates;
      message.rate = meter.rate();
      changed();
    }
    if (message.state === "writing") message.state = "done";
  } catch (error) {
    end(message, error, signal);
  }
  delete message.progress;
  delete message.rate;
  changed();
}

function promptOf(conversation, message) {
  const before = pathTo(conversation, message).slice(0, -1);
  const said = before.filter(({ content }) => content).map(({ role, content }) => ({ role, content }));
  return settings.system.trim() ? [{ role: "system", content: settings.system }, ...said] : said;
}

function grow(message, chunk, meter, last) {
  delete message.progress;
  last.usage = chunk.usage ?? last.usage;
  last.timings = chunk.timings ?? last.timings;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const { content, reasoning_content: thoughts } = choice.delta ?? {};
  const tokens = tokensOf(choice.logprobs, last.decoder);
  if (thoughts) message.thoughts += thoughts;
  if (content) message.content += content;
  message.tokens.push(...tokens);
  if (content || thoughts) meter.add(tokens.length || 1);
  if (choice.finish_reason) message.state = choice.finish_reason === "length" ? "length" : "done";
}

function end(message, error, signal) {
  message.state = signal.aborted ? "stopped" : "failed";
  if (signal.aborted) return;
  const { kind, wait } = error instanceof Failure ? error : { kind: "other", wait: null };
  message.failure = { kind, words: error.message, until: wait === null ? null : Date.now() + 1000 * wait };
}
