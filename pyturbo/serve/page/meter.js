// The figures of one reply: measured here, and replaced by the server's own where it sends them.

const WINDOW = 1000; // ms over which the speed of the moment is taken
const STEP = 250; // ms between two points of the curve

/** Counts the tokens of a reply as they come. */
export class Meter {
  constructor(now = performance.now()) {
    this.begin = now;
    this.times = [];
    this.rates = [];
    this.sampled = now;
  }

  /** Note that a chunk came. A chunk with probabilities says how many tokens it has; any other counts as one. */
  add(tokens = 1, now = performance.now()) {
    for (let each = 0; each < tokens; each++) this.times.push(now);
    if (now - this.sampled >= STEP) {
      this.sampled = now;
      this.rates = [...this.rates, this.rate(now)].slice(-120);
    }
  }

  /** Tokens per second of the last second. */
  rate(now = performance.now()) {
    const recent = this.times.filter((time) => time > now - WINDOW);
    const span = Math.min(WINDOW, now - (this.times[0] ?? now));
    return span > 0 ? (1000 * recent.length) / span : 0;
  }

  /** What is known so far; `usage` and `timings` are those of the last chunks. */
  figures(usage, timings) {
    const [first, last] = [this.times[0], this.times.at(-1)];
    const tokens = timings?.tokens ?? usage?.completion_tokens ?? this.times.length;
    const cached = timings?.cached_tokens ?? usage?.prompt_tokens_details?.cached_tokens ?? null;
    const seconds = timings?.seconds ?? (last > first ? (last - first) / 1000 : null);
    return {
      tokens,
      seconds,
      speed: timings?.tokens_per_second ?? (seconds && tokens > 1 ? (tokens - 1) / seconds : null),
      wait: first === undefined ? null : (first - this.begin) / 1000,
      // All of it: `timings` has the tokens that were read beside those that were known already.
      prompt: usage?.prompt_tokens ?? (timings ? timings.prompt_tokens + timings.cached_tokens : null),
      cached,
      reading: timings?.prompt_seconds ?? null,
    };
  }
}
