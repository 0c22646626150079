// What the user chose. It is kept in localStorage; the API key only where the user says so.

const PLACE = "pyturbo/settings";

/** The values before anything was chosen. "" leaves a choice to the server. */
const DEFAULTS = {
  model: "",
  system: "",
  temperature: "",
  top_p: "",
  top_k: "",
  max_tokens: "",
  seed: "",
  logprobs: false,
  key: "",
  keep_key: false,
  theme: "system",
};

const listeners = [];

/** The settings in force. Change them with `choose`. */
export const settings = { ...DEFAULTS, ...read() };

/** Change settings, keep them, and tell whoever asked to know. */
export function choose(changes) {
  Object.assign(settings, changes);
  const kept = { ...settings, key: settings.keep_key ? settings.key : "" };
  try {
    localStorage.setItem(PLACE, JSON.stringify(kept));
  } catch {
    // A browser without storage has the settings until the page is left.
  }
  for (const listener of listeners) listener(settings);
}

/** Call a function now and after every change. */
export function watchSettings(listener) {
  listeners.push(listener);
  listener(settings);
}

/** The fields of a request that the settings decide. */
export function requestOptions() {
  const numbers = ["temperature", "top_p", "top_k", "max_tokens", "seed"].filter((name) => settings[name] !== "");
  const options = Object.fromEntries(numbers.map((name) => [name, Number(settings[name])]));
  return settings.logprobs ? { ...options, logprobs: true, top_logprobs: 5 } : options;
}

function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(PLACE)) ?? {};
    return Object.fromEntries(Object.entries(kept).filter(([name, value]) => typeof value === typeof DEFAULTS[name]));
  } catch {
    return {};
  }
}
