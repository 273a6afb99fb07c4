// Proving a layout on Megatron Core: the command, and the levels where this server runs it.

import { get, post } from "./api.js";
import { copy, el, fill } from "./dom.js";
import { shown } from "./layout.js";
import { changes, layoutQuestion } from "./state.js";

const PATIENCE = 700;
let asked = 0;

/** Fill `node` with how the layout that is shown is proved, and follow the job if there is one. */
export async function prove(node) {
  if (!shown.plan) return;
  const mine = ++asked;
  try {
    const answer = await post("verify", layoutQuestion(shown.plan, changes()));
    if (!answer) return;
    const result = el("div", { role: "status" });
    fill(node, command(answer.command), result);
    if (answer.job) await follow(answer.job, result, () => mine === asked && node.contains(result));
    else fill(result, el("p", { class: "hint" }, "Run it where Megatron Core is installed (pip install 'meshwright[verify]'); a server started with --verify runs it from this page."));
  } catch (error) {
    fill(node, el("p", { class: "message error" }, error.message));
  }
}

function command(text) {
  return el("div", { class: "file" }, el("h3", {}, "Prove it on Megatron Core"),
    el("div", { class: "actions" },
      el("button", { type: "button", class: "copy", onclick: (event) => copy(text, event.target) }, "Copy")),
    el("pre", { tabindex: "0" }, text));
}

async function follow(job, node, wanted) {
  const start = Date.now();
  while (wanted()) {
    const found = await get(`verify/${job}`);
    if (found.status === "done") return fill(node, levels(found.answer));
    if (found.status === "failed") return fill(node, el("p", { class: "message error" }, found.error));
    const words = found.status === "waiting" ? "Waiting for another verification" : "Running on Megatron Core";
    fill(node, el("p", { class: "hint" }, `${words}, ${Math.round((Date.now() - start) / 1000)} s`));
    await new Promise((done) => { setTimeout(done, PATIENCE); });
  }
}

const CLASSES = { pass: "fits", fail: "does-not-fit", skipped: "tight" };

function levels(answer) {
  const head = ["Level", "Verdict", "Seconds", "What was shown"].map((word) => el("th", { scope: "col" }, word));
  const rows = answer.levels.map((one) => el("tr", {},
    el("th", { scope: "row" }, `${one.level} ${one.name}`), el("td", { class: CLASSES[one.verdict] }, one.verdict),
    el("td", { class: "number" }, one.seconds.toFixed(1)), el("td", {}, one.why)));
  return el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Levels of evidence" },
    el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
}
