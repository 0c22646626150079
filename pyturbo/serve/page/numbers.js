// Numbers as people read them.

/** A number of things: 12,345. */
export function count(value) {
  return Math.round(value).toLocaleString("en");
}

/** Seconds: 85 ms, 1.24 s, 2 min 5 s. */
export function duration(seconds) {
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** Tokens per second, in three digits or so. */
export function speed(value) {
  return value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
}

/** A size in memory: 1.5 GiB. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${unit ? value.toFixed(value < 10 ? 2 : 1) : Math.round(value)} ${units[unit]}`;
}

/** A probability or a share: 97 %, 0.4 %. */
export function percent(share) {
  const value = 100 * share;
  return value < 0.1 ? "< 0.1 %" : `${value.toFixed(value < 9.95 || (value > 99 && value < 99.95) ? 1 : 0)} %`;
}
