// Checking a pasted script: it is sent, read and judged; it is never run.

import { post } from "./api.js";
import { $, el, fill, findingsList } from "./dom.js";
import { set, state } from "./state.js";

const WORDS = { ok: "Nothing found: it should start.", warn: "It starts, with warnings.", invalid: "It cannot start.", unknown: "It cannot be told yet." };

export function buildCheck() {
  $("script").addEventListener("submit", (event) => { event.preventDefault(); check(); });
  $("text").addEventListener("change", () => set({ script: $("text").value }));
  $("script-name").addEventListener("change", () => set({ scriptName: $("script-name").value }));
  $("script-gpus").addEventListener("change", () => set({ scriptGpus: $("script-gpus").value }));
}

export function restoreCheck() {
  $("text").value = state.script;
  $("script-name").value = state.scriptName;
  $("script-gpus").value = state.scriptGpus;
  if (state.view === "check" && state.script) check();
}

async function check() {
  await set({ script: $("text").value });
  $("check-message").hidden = true;
  $("check-status").textContent = "Reading…";
  const asked = { text: state.script, name: state.scriptName };
  if (state.scriptGpus) asked.gpus = Number(state.scriptGpus);
  try {
    if (!state.script.trim()) throw new Error("paste a launch script or a config first");
    const answer = await post("check", asked);
    if (!answer) return;
    $("checked").hidden = false;
    $("checked-title").textContent = `Findings: ${answer.verdict}`;
    const open = answer.unknown.map((words) => el("li", {}, words));
    fill($("check-findings"), el("p", { class: `verdict ${answer.verdict}` }, WORDS[answer.verdict]),
      ...(answer.findings.length ? [findingsList(answer.findings)] : []),
      ...(open.length ? [el("h3", {}, "Not known"), el("ul", {}, ...open)] : []), resolved(answer));
  } catch (error) {
    $("checked").hidden = true;
    $("check-message").hidden = false;
    $("check-message").className = "message error";
    $("check-message").textContent = error.message;
  } finally { $("check-status").textContent = ""; }
}

function resolved(answer) {
  const rows = Object.entries(answer.resolved).map(([name, one]) => el("tr", {}, el("th", { scope: "row" }, name),
    el("td", {}, String(one.value)), el("td", { class: "soft" }, one.from)));
  return el("details", {}, el("summary", {}, `What it says: ${rows.length} options`),
    el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Options" }, el("table", {}, el("tbody", {}, ...rows))));
}
