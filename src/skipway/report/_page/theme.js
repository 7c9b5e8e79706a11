"use strict";
// The theme: what the reader's system prefers, until the button is used; the choice is kept where the browser allows it.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem("skipway-theme"); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem("skipway-theme", theme); } catch { /* a page without storage forgets */ } };
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const chosen = kept();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const tell = () => button.setAttribute("aria-pressed", String(shown() === "dark"));
    button.addEventListener("click", () => {
      root.dataset.theme = shown() === "dark" ? "light" : "dark";
      keep(root.dataset.theme);
      tell();
    });
    dark.addEventListener("change", tell);
    tell();
  });
})();
