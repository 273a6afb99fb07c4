// One layout: its degrees to change, its pictures, and how memory and time moved.

import { post } from "./api.js";
import { $, draw, el, fill, findingsList, gib, layoutWords, percent, recomputeWords, seconds, whole } from "./dom.js";
import { changes, layoutQuestion, set, state } from "./state.js";

const TABS = [["ranks", "Rank grid"], ["timeline", "Timeline"], ["memory-over", "Memory over the step"],
  ["pipeline", "Pipeline layout"], ["traffic", "Traffic"]];
const POWERS = [1, 2, 4, 8, 16, 32, 64, 128];
const NAMES = { tp: "TP", pp: "PP", vpp: "VPP", cp: "CP", ep: "EP", etp: "ETP", mbs: "Micro-batch" };

/** The layout that is shown now, as the API answered it. */
export const shown = { plan: null, answer: null };

export function buildTabs() {
  fill($("tabs"), ...TABS.map(([name, words]) => el("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "tab-panel", "data-tab": name,
    onclick: () => { set({ picture: name }); refresh(); },
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = TABS[(TABS.findIndex(([one]) => one === name) + step + TABS.length) % TABS.length][0];
      set({ picture: next });
      refresh();
      $(`tab-${next}`).focus();
    },
  }, words)));
  $("group").addEventListener("change", () => { set({ group: $("group").value }); refresh(); });
}

export async function showPlan(plan) {
  shown.plan = plan;
  $("layout").hidden = $("take").hidden = $("scaling").hidden = false;
  buildChoices(plan);
  await refresh();
}

function buildChoices(plan) {
  const fields = Object.entries(NAMES).filter(([name]) => name !== "ep" && name !== "etp" || plan.layout.ep > 1 || isMoe(plan));
  const now = changes();
  const controls = fields.map(([name, words]) => {
    const values = [...new Set([...candidates(name, plan), plan.layout[name], Number(now[name] ?? plan.layout[name])])].sort((a, b) => a - b);
    return choice(name, words, values, String(now[name] ?? plan.layout[name]), plan.layout[name]);
  });
  const recompute = plan.execution.recompute.granularity;
  controls.push(choice("recompute", "Recompute", ["none", "selective", "full"], now.recompute ?? recompute, recompute));
  fill($("change"), ...controls, el("button", { type: "button", id: "undo", onclick: undo }, "Undo changes"));
}

const isMoe = (plan) => plan.model.active_parameters < plan.model.parameters;

function candidates(name, plan) {
  const world = plan.cluster.gpus;
  if (name === "pp") {
    const layers = plan.model.num_layers;
    return [...POWERS, ...Array.from({ length: 32 }, (_, k) => k + 1).filter((k) => layers % k === 0)].filter((k) => k <= world);
  }
  if (name === "vpp") return [1, 2, 3, 4, 5, 6, 8, 10];
  return POWERS.filter((k) => k <= Math.min(world, name === "tp" || name === "mbs" ? 16 : 128));
}

function choice(name, words, values, value, own) {
  const select = el("select", {
    id: `change-${name}`, onchange: (event) => {
      const now = changes();
      if (event.target.value === String(own)) delete now[name]; else now[name] = event.target.value;
      set({ change: Object.entries(now).map((pair) => pair.join(":")).join(",") });
      refresh();
    },
  }, ...values.map((one) => el("option", { selected: String(one) === value }, String(one))));
  return el("div", { class: "field" }, el("label", { for: `change-${name}` }, words), select);
}

function undo() {
  set({ change: "" });
  buildChoices(shown.plan);
  refresh();
}

/** The width that drawings have room for, in steps that let answers be kept. */
export function roomOf(node, share = 1) {
  const room = (node.clientWidth || 640) * share;
  return Math.min(Math.max(Math.floor(room / 20) * 20, 320), 860);
}

/** Ask for the layout as it is now, and show it. */
export async function refresh() {
  const plan = shown.plan;
  if (!plan) return;
  const now = changes();
  markTabs();
  const asked = layoutQuestion(plan, now);
  const small = roomOf($("picture-memory"));
  const wide = roomOf($("tab-panel"));
  $("layout").setAttribute("aria-busy", "true");
  try {
    const group = state.group && state.picture === "ranks" ? { group: state.group } : {};
    const [first, second] = await Promise.all([
      post("estimate", { ...asked, width: small, pictures: ["memory", "step"] }, "layout"),
      post("estimate", { ...asked, ...group, width: wide, pictures: [state.picture] }, "tab"),
    ]);
    if (first) showAnswer(first, now);
    if (second) showTab(second);
  } catch (error) {
    fill($("numbers"));
    $("moved").textContent = "";
    fill($("findings"), el("p", { class: "message error" }, error.message));
    for (const name of ["picture-memory", "picture-step", "picture-tab"]) draw($(name), null);
  } finally {
    $("layout").removeAttribute("aria-busy");
  }
}

function markTabs() {
  for (const [name] of TABS) {
    const tab = $(`tab-${name}`);
    tab.setAttribute("aria-selected", String(name === state.picture));
    tab.tabIndex = name === state.picture ? 0 : -1;
  }
  $("tab-panel").setAttribute("aria-labelledby", `tab-${state.picture}`);
  $("group-choice").hidden = state.picture !== "ranks";
}

function showAnswer(answer, now) {
  shown.answer = answer;
  const { plan } = shown;
  const picture = (name) => answer.pictures?.find((one) => one.name === name);
  $("layout-title").textContent = `Layout: ${layoutWords(answer.layout, answer.execution)}`;
  draw($("picture-memory"), picture("memory"));
  draw($("picture-step"), picture("step"));
  fill($("numbers"), ...(answer.memory ? numbers(answer) : []));
  $("moved").textContent = Object.keys(now).length ? movement(plan, answer) : "";
  fill($("findings"), ...(answer.findings.length ? [findingsList(answer.findings)] : []));
  const changed = Object.keys(now).length > 0;
  $("undo").hidden = !changed;
  fill($("why"), ...lists(answer, changed ? [] : plan.reasons, plan.assumptions));
}

function numbers(answer) {
  const { memory, time, layout } = answer;
  const rows = [
    ["Memory", `${gib(memory.peak_bytes)} GiB of ${gib(memory.usable_bytes)}`, memory.verdict.replaceAll("-", " ")],
    ["Step", seconds(time.step_seconds), `${seconds(time.low_seconds)} to ${seconds(time.high_seconds)}`],
    ["Throughput", `${Math.round(time.tokens_per_second_per_gpu).toLocaleString("en")} tokens/s a GPU`, `${time.model_tflops_per_gpu.toFixed(0)} model TFLOP/s, MFU ${(time.mfu * 100).toFixed(1)}%`],
    ["Data parallel", `DP ${whole(layout.dp)}, EDP ${whole(layout.edp)}`, `${whole(layout.num_microbatches)} micro-batches, recompute ${recomputeWords(answer.execution.recompute)}`],
  ];
  return rows.map(([words, value, more]) => el("div", { class: "fact" }, el("span", { class: "soft" }, words),
    el("strong", { class: words === "Memory" ? memory.verdict : null }, value), el("span", { class: "soft" }, more)));
}

function movement(plan, answer) {
  if (!answer.valid || !answer.memory) return "This layout cannot start; the findings say why.";
  const memory = answer.memory.peak_bytes - plan.memory.peak_bytes;
  const time = answer.time.step_seconds / plan.time.step_seconds - 1;
  return `Against the plan: memory ${gib(plan.memory.peak_bytes)} to ${gib(answer.memory.peak_bytes)} GiB `
    + `(${memory >= 0 ? "+" : "-"}${gib(Math.abs(memory))}), step ${seconds(plan.time.step_seconds)} to `
    + `${seconds(answer.time.step_seconds)} (${percent(time)}).`;
}

function showTab(answer) {
  const picture = answer.pictures?.find((one) => one.name === state.picture);
  draw($("picture-tab"), picture);
  $("tab-words").textContent = picture ? picture.description : "There is no picture of a layout that cannot start.";
  if (state.picture === "ranks" && !state.group) {
    const said = /Coloured by ([\w-]+):/.exec(picture?.description ?? "");
    if (said) $("group").value = said[1];
  } else if (state.group) $("group").value = state.group;
}

function lists(answer, reasons, assumptions) {
  const bySource = new Map();
  for (const one of assumptions) bySource.set(one.from, [...(bySource.get(one.from) ?? []), one]);
  const assumed = [...bySource].map(([source, rows]) => `${rows.map((one) => `${one.option} ${one.value}`).join(", ")}: ${source}`);
  return [["What stops it from being better", answer.binding], ["Against its neighbours", reasons], ["Assumed", assumed]]
    .filter(([, lines]) => lines.length)
    .map(([title, lines]) => el("div", {}, el("h3", {}, title), el("ul", {}, ...lines.map((line) => el("li", {}, line)))));
}
