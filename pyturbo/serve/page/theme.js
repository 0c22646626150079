// Light or dark: what the user chose, or what the system says. It runs before the page is first drawn.

import { watchSettings } from "./settings.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen = "system";

function apply() {
  const theme = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
  document.documentElement.dataset.theme = theme;
  document.querySelector("meta[name=theme-color]").content = theme === "dark" ? "#171614" : "#faf9f6";
}

dark.addEventListener("change", apply);
watchSettings(({ theme }) => {
  chosen = theme;
  apply();
});
