// The ranking: a table whose rows are chosen and compared, and the comparison of those picked.

import { $, el, fill, gib, layoutWords, recomputeWords, seconds, whole } from "./dom.js";
import { set, state } from "./state.js";

const WIDE = ["Recompute", "Tokens/s a GPU"];
const compared = () => new Set(state.compare.split(",").filter(Boolean));

export function showPlans(answer, chosen, choose) {
  const rows = answer.plans.map((plan, index) => row(plan, index + 1, chosen, choose, answer));
  const head = ["", "Layout", "Recompute", "GiB", "Step", "Tokens/s a GPU", "Compare"].map((word) =>
    word ? el("th", { scope: "col", class: WIDE.includes(word) ? "wide-only" : null }, word) : el("td", {}));
  fill($("ranking"), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
  const legal = answer.valid === answer.searched ? "" : `, ${answer.valid.toLocaleString("en")} legal`;
  let words = `${answer.searched.toLocaleString("en")} ${legal ? "" : "legal "}layouts searched${legal}, `
    + `${answer.fitting.toLocaleString("en")} fit (${answer.seconds.toFixed(2)} s).`;
  if (answer.ties > 1) words += ` ${answer.ties} are tied (=): too close to tell apart.`;
  $("searched").textContent = words;
  showComparison(answer);
}

function row(plan, place, chosen, choose, answer) {
  const pick = el("button", {
    type: "button", class: "link", "aria-pressed": String(place === chosen), "data-plan": place,
    onclick: () => choose(place),
  }, layoutWords(plan.layout, plan.execution));
  const box = el("input", {
    type: "checkbox", "aria-label": `Compare plan ${place}`, checked: compared().has(String(place)),
    onchange: (event) => {
      const picked = compared();
      if (event.target.checked) picked.add(String(place)); else picked.delete(String(place));
      set({ compare: [...picked].sort((a, b) => a - b).join(",") });
      showComparison(answer);
    },
  });
  return el("tr", { class: place === chosen ? "chosen" : null },
    el("td", { class: "number" }, `${place}${plan.tied ? "=" : ""}`),
    el("th", { scope: "row" }, pick),
    el("td", { class: "wide-only" }, recomputeWords(plan.execution.recompute)),
    el("td", { class: `number ${plan.memory.verdict}` }, gib(plan.memory.peak_bytes)),
    el("td", { class: "number" }, seconds(plan.time.step_seconds)),
    el("td", { class: "number wide-only" }, Math.round(plan.time.tokens_per_second_per_gpu).toLocaleString("en")),
    el("td", {}, box));
}

const LINES = [
  ["Layout", (p) => layoutWords(p.layout, p.execution)],
  ["Recompute", (p) => recomputeWords(p.execution.recompute)],
  ["Memory", (p) => `${gib(p.memory.peak_bytes)} GiB, ${p.memory.verdict}`],
  ["of it activations", (p) => `${gib(Math.max(...p.memory.per_stage.map((s) => s.activations_bytes)))} GiB`],
  ["Step", (p) => seconds(p.time.step_seconds)],
  ["its band", (p) => `${seconds(p.time.low_seconds)} to ${seconds(p.time.high_seconds)}`],
  ["Model TFLOP/s a GPU", (p) => p.time.model_tflops_per_gpu.toFixed(0)],
  ["MFU", (p) => `${(p.time.mfu * 100).toFixed(1)}%`],
  ["Bubble", (p) => seconds(p.time.terms.bubble)],
  ["Communication", (p) => seconds(["tp", "cp", "ep", "pp", "dp"].reduce((sum, name) => sum + (p.time.terms[name] ?? 0), 0))],
  ["Micro-batches", (p) => whole(p.layout.num_microbatches)],
  ["Pipeline layout", (p) => p.execution.pipeline_layout ?? "one stage"],
];

export function showComparison(answer) {
  const picked = [...compared()].map(Number).filter((place) => answer.plans[place - 1]).sort((a, b) => a - b);
  $("compare").hidden = picked.length < 2;
  if (picked.length < 2) return;
  const plans = picked.map((place) => answer.plans[place - 1]);
  const head = el("tr", {}, el("td", {}), ...picked.map((place) => el("th", { scope: "col" }, `Plan ${place}`)));
  const rows = LINES.map(([words, value]) => {
    const cells = plans.map(value);
    const differs = new Set(cells).size > 1;
    return el("tr", { class: differs ? "differs" : null }, el("th", { scope: "row" }, words),
      ...cells.map((cell) => el("td", {}, cell)));
  });
  fill($("comparison"), el("thead", {}, head), el("tbody", {}, ...rows));
}
