"use strict";
const theme = document.getElementById("theme");
const root = document.documentElement;
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
const label = () => { theme.textContent = dark() ? theme.dataset.light : theme.dataset.dark; theme.setAttribute("aria-pressed", String(dark())); };
theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
label();
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const node = document.getElementById(button.dataset.copy);
    try { await navigator.clipboard.writeText(node.textContent); }
    catch {
      const range = document.createRange(); range.selectNodeContents(node);
      const chosen = getSelection(); chosen.removeAllRanges(); chosen.addRange(range);
      document.execCommand("copy"); chosen.removeAllRanges();
    }
    const words = button.textContent; if (words === button.dataset.copied) return;
    button.textContent = button.dataset.copied; setTimeout(() => { button.textContent = words; }, 1500);
  });
}
