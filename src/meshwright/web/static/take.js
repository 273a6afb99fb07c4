// What can be taken along: the link, the report, the JSON, configs of frameworks.

import { get, post } from "./api.js";
import { $, copy, el, fill, save } from "./dom.js";
import { shown } from "./layout.js";
import { prove } from "./prove.js";
import { changes, layoutQuestion, question } from "./state.js";

export async function buildTake(answerOf) {
  const limits = await get("limits");
  fill($("target"), ...limits.targets.map((name) => el("option", {}, name)));
  if (limits.targets.includes("megatron-bridge")) $("target").value = "megatron-bridge";
  $("copy-link").addEventListener("click", (event) => copy(location.href, event.target));
  $("save-json").addEventListener("click", () => save("plan.json", JSON.stringify(answerOf(), null, 1), "application/json"));
  $("save-report").addEventListener("click", saveReport);
  $("save-trace").addEventListener("click", saveTrace);
  $("write").addEventListener("click", write);
  $("verify").addEventListener("click", () => prove($("written")));
}

async function saveReport(event) {
  event.target.disabled = true;
  try {
    const page = await post("report", { ...question(), top: 10 });
    if (page) save("plan.html", page, "text/html");
  } catch (error) {
    fill($("written"), el("p", { class: "message error" }, error.message));
  } finally { event.target.disabled = false; }
}

async function saveTrace() {
  if (!shown.plan) return;
  try {
    const answer = await post("trace", layoutQuestion(shown.plan, changes()));
    if (answer) save("step.trace.json", JSON.stringify(answer), "application/json");
  } catch (error) {
    fill($("written"), el("p", { class: "message error" }, error.message));
  }
}

async function write() {
  if (!shown.plan) return;
  try {
    const answer = await post("write", { ...layoutQuestion(shown.plan, changes()), target: $("target").value });
    if (!answer) return;
    fill($("written"), ...Object.entries(answer.files).map(([name, text]) => file(name, text)));
  } catch (error) {
    fill($("written"), el("p", { class: "message error" }, error.message));
  }
}

function file(name, text) {
  return el("div", { class: "file" },
    el("h3", {}, name),
    el("div", { class: "actions" },
      el("button", { type: "button", class: "copy", onclick: (event) => copy(text, event.target) }, "Copy"),
      el("button", { type: "button", onclick: () => save(name, text, "text/plain") }, "Save")),
    el("pre", { tabindex: "0" }, text));
}
