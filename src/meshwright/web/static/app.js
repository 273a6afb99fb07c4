// The page: from the address to the form, from the form to plans, from a plan to its pictures.

import { debounced, get, post, stop } from "./api.js";
import { buildCheck, restoreCheck } from "./check.js";
import { $, draw, el, fill } from "./dom.js";
import { buildTabs, refresh, roomOf, showPlan, shown } from "./layout.js";
import { showPlans } from "./plans.js";
import { DEGREES, question, readAddress, set, state } from "./state.js";
import { buildTake } from "./take.js";

const FIELDS = ["model", "count", "kind", "seq", "batch", "precision", "task", "framework", "optimizer", "recompute", "fsdp", ...DEGREES];
const TOP = 12;
let catalog = new Map();
let answer = null;

async function start() {
  theme();
  fill($("degrees"), ...DEGREES.map((name) => el("div", { class: "field" },
    el("label", { for: name }, name.toUpperCase()),
    el("input", { id: name, name, inputmode: "numeric", pattern: "[0-9, ]*", placeholder: "free" }))));
  buildTabs();
  buildCheck();
  listen();
  await readAddress();
  const [models, gpus] = await Promise.all([get("models"), get("gpus"), buildTake(() => answer)]);
  catalog = new Map(models.map((row) => [row.name, row]));
  fill($("models"), ...models.map((row) => el("option", { value: row.name })));
  fill($("kind"), ...gpus.map((row) => el("option", {}, row.name)));
  restore();
}

function listen() {
  const later = debounced(plan, 250);
  $("question").addEventListener("input", (event) => {
    if (!FIELDS.includes(event.target.id)) return;
    if (event.target.id === "model") forget(false);
    set({ [event.target.id]: event.target.value, plan: "1", change: "", compare: "" });
    hint();
    later();
  });
  $("question").addEventListener("submit", (event) => { event.preventDefault(); plan(); });
  $("upload").addEventListener("change", upload);
  $("forget").addEventListener("click", () => { forget(true); plan(); });
  $("reset").addEventListener("click", () => { location.hash = ""; });
  for (const button of document.querySelectorAll("[data-example]")) {
    button.addEventListener("click", () => { location.hash = button.dataset.example; });
  }
  $("skip").addEventListener("click", (event) => { event.preventDefault(); $("results").focus(); });
  $("to-plan").addEventListener("click", () => view("plan"));
  $("to-check").addEventListener("click", () => view("check"));
  addEventListener("hashchange", async () => { await readAddress(); restore(); });
  $("scaling").addEventListener("toggle", scaling);
  let before = innerWidth;
  addEventListener("resize", debounced(() => { if (innerWidth !== before) { before = innerWidth; refresh(); } }, 300));
}

/** The form as the state has it, then the plans. */
function restore() {
  for (const name of FIELDS) $(name).value = state[name];
  if (![...$("kind").options].some((one) => one.value === state.kind)) $("kind").append(el("option", {}, state.kind));
  $("kind").value = state.kind;
  $("uploaded").hidden = !state.config;
  $("uploaded-name").textContent = state.configName;
  $("upload").value = "";
  $("constraints").open = [...DEGREES, "recompute", "fsdp"].some((name) => state[name]);
  hint();
  view(state.view);
  restoreCheck();
  plan();
}

function view(name) {
  if (state.view !== name) set({ view: name });
  for (const one of ["plan", "check"]) {
    $(`${one}-view`).hidden = one !== name;
    $(`to-${one}`).setAttribute("aria-pressed", String(one === name));
  }
  document.title = name === "check" ? "Check a script - Meshwright" : "Meshwright";
}

function hint() {
  const row = catalog.get(state.model);
  const billions = (value) => `${(value / 1e9).toFixed(1)} B`;
  $("model-hint").textContent = state.config || !row || !row.parameters ? "" :
    `${billions(row.parameters)} parameters` + (row.active_parameters < row.parameters ? `, ${billions(row.active_parameters)} active` : "");
}

async function upload() {
  const file = $("upload").files[0];
  if (!file) return;
  if (file.size > 1_000_000) {
    say(`${file.name} has ${file.size.toLocaleString("en")} bytes; a config.json is far smaller`);
    return;
  }
  $("model").value = "";
  await set({ config: await file.text(), configName: file.name, model: "", plan: "1", change: "", compare: "" });
  $("uploaded").hidden = false;
  $("uploaded-name").textContent = file.name;
  hint();
  plan();
}

function forget(also) {
  if (!state.config) return;
  set({ config: "", configName: "" });
  $("uploaded").hidden = true;
  $("upload").value = "";
  if (also) set({ plan: "1", change: "", compare: "" });
}

async function plan() {
  const asked = question();
  if (!asked) {
    stop("plan");
    answer = shown.plan = null;
    only("empty");
    say("");
    $("status").textContent = "";
    return;
  }
  if ($("question").querySelector(":invalid:not([required])")) {
    say("A constraint is a whole number, or a list such as 1,2,4.");
    return;
  }
  $("status").textContent = "Searching…";
  $("results").setAttribute("aria-busy", "true");
  try {
    const room = roomOf($("results"));
    const found = await post("plan", { ...asked, top: TOP, width: room }, "plan");
    if (!found) return;
    answer = found;
    say("");
    show();
  } catch (error) {
    answer = shown.plan = null;
    only("");
    say(error.message);
  }
  $("status").textContent = "";
  $("results").removeAttribute("aria-busy");
}

function show() {
  if (!answer.plans.length) {
    only("");
    const why = Object.entries(answer.refused).sort((a, b) => b[1] - a[1]).slice(0, 3).map(([rule]) => rule).join(", ");
    say("No layout is legal for this model, these GPUs and this batch" + (why ? ` (most often: ${why})` : "") + ".", fewest());
    return;
  }
  only("plans");
  if (!answer.fitting) say("None fits: shown is the legal layout that needs least memory.", fewest());
  const place = Math.min(Math.max(Number(state.plan) || 1, 1), answer.plans.length);
  showPlans(answer, place, choose);
  draw($("scatter"), answer.pictures?.[0]);
  fill($("written"));
  showPlan(answer.plans[place - 1]);
  if ($("scaling").open) scaling();
}

function choose(place) {
  set({ plan: String(place), change: "" });
  showPlans(answer, place, choose);
  fill($("written"));
  document.querySelector(`[data-plan="${place}"]`).focus();
  showPlan(answer.plans[place - 1]);
}

/** A button that asks for the fewest GPUs that train it. */
function fewest() {
  return el("button", {
    type: "button", onclick: async (event) => {
      event.target.disabled = true;
      event.target.textContent = "Searching…";
      const { gpus, ...asked } = question();
      void gpus;
      try {
        const found = await post("fit", { ...asked, gpu: state.kind }, "fit");
        if (!found) return;
        if (!found.min_gpus_fitting) { say("No number of GPUs that was tried holds this model with this batch."); return; }
        $("count").value = found.min_gpus_fitting;
        set({ count: String(found.min_gpus_fitting) });
        plan();
      } catch (error) { say(error.message); }
    },
  }, "Find the fewest GPUs");
}

async function scaling() {
  const asked = question();
  if (!$("scaling").open || !asked) return;
  $("picture-scaling").textContent = "Searching…";
  try {
    const found = await post("scaling", { ...asked, width: roomOf($("picture-scaling")) });
    if (!found) return;
    if (found.pictures.length) draw($("picture-scaling"), found.pictures[0]);
    else $("picture-scaling").textContent = "Fewer than two numbers of GPUs hold this model.";
  } catch (error) { $("picture-scaling").textContent = error.message; }
}

/** Show one of the sections and hide those that follow from an answer. */
function only(name) {
  for (const one of ["empty", "plans", "compare", "layout", "take", "scaling"]) {
    if (one === "empty" || one === "plans") $(one).hidden = one !== name;
    else if (name !== "plans") $(one).hidden = true;
  }
}

function say(words, more = null) {
  $("message").hidden = !words;
  $("message").className = "message error";
  fill($("message"), words, ...(more ? [" ", more] : []));
}

function theme() {
  const root = document.documentElement;
  const kept = localStorage.getItem("theme");
  if (kept) root.dataset.theme = kept;
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => { $("theme").textContent = dark() ? "Light" : "Dark"; $("theme").setAttribute("aria-pressed", String(dark())); };
  $("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    label();
  });
  label();
}

start().catch((error) => { say(error.message); });
