"use strict";
const theme = document.getElementById("theme");
const root = document.documentElement;
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
const label = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.setAttribute("aria-pressed", String(dark())); };
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
    button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
