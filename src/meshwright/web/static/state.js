// The whole state of the page, kept in the fragment of its address. The fragment is never sent to a server.

export const DEGREES = ["tp", "pp", "vpp", "cp", "ep", "etp", "mbs"];

const DEFAULTS = {
  view: "plan", model: "", config: "", configName: "", count: "", kind: "H100", seq: "", batch: "",
  precision: "bf16", task: "pretrain", framework: "megatron-bridge", optimizer: "adam", recompute: "", fsdp: "",
  tp: "", pp: "", vpp: "", cp: "", ep: "", etp: "", mbs: "",
  plan: "1", change: "", compare: "", picture: "ranks", group: "",
  script: "", scriptName: "script.sh", scriptGpus: "",
};
const LONG = ["config", "script"];

export const state = { ...DEFAULTS };

export async function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, DEFAULTS);
  for (const [name, value] of said) {
    if (!(name in DEFAULTS)) continue;
    state[name] = LONG.includes(name) ? await unpack(value) : value;
  }
}

let writing = Promise.resolve();

/** Set some fields and keep them in the address; what does not differ from its default is left out. */
export function set(fields) {
  Object.assign(state, fields);
  writing = writing.then(write);
  return writing;
}

async function write() {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value === DEFAULTS[name]) continue;
    said.set(name, LONG.includes(name) ? await pack(value) : value);
  }
  history.replaceState(null, "", `#${said}`);
}

export const changes = () => Object.fromEntries(
  state.change.split(",").filter(Boolean).map((pair) => pair.split(":")).map(([name, value]) => [name, value]));

async function pack(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpack(text) {
  try {
    const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return (await new Response(stream).text()).slice(0, 1_000_000);
  } catch { return ""; }
}

/** The question of the form, as the API takes it; null while model or GPUs are missing. */
export function question() {
  if ((!state.model && !state.config) || !(Number(state.count) >= 1)) return null;
  const asked = {
    gpus: `${Math.trunc(Number(state.count))}x${state.kind}`, precision: state.precision, task: state.task,
    framework: state.framework, optimizer: state.optimizer,
  };
  if (state.config) Object.assign(asked, { config: state.config, config_name: state.configName || "config.json" });
  else asked.model = state.model.trim();
  if (state.seq) asked.seq_length = Number(state.seq);
  if (state.batch) asked.global_batch = Number(state.batch);
  for (const name of DEGREES) {
    const values = state[name].split(",").map((word) => word.trim()).filter(Boolean).map(Number);
    if (values.length) asked[name] = values.length === 1 ? values[0] : values;
  }
  if (state.recompute) {
    asked.recompute = { granularity: state.recompute, modules: state.recompute === "selective" ? ["core_attn"] : [] };
  }
  if (state.fsdp) asked.execution = { fsdp: state.fsdp === "yes" };
  return asked;
}

/** One layout as a question: that of a plan, with some degrees changed. */
export function layoutQuestion(plan, changed) {
  const asked = question();
  const layout = { ...plan.layout };
  const degrees = DEGREES.filter((name) => name in changed);
  for (const name of DEGREES) asked[name] = Number(changed[name] ?? layout[name]);
  asked.global_batch = layout.gbs;
  asked.seq_length = plan.job.seq_length;
  asked.sp = "tp" in changed ? asked.tp > 1 : layout.sp;
  const { pipeline_layout, recompute, ...execution } = plan.execution;
  asked.recompute = recompute;
  if ("recompute" in changed) {
    asked.recompute = { granularity: changed.recompute, modules: changed.recompute === "selective" ? ["core_attn"] : [] };
  }
  if (pipeline_layout && asked.pp > 1 && !degrees.includes("pp") && !degrees.includes("vpp")) asked.pipeline_layout = pipeline_layout;
  asked.execution = execution;
  return asked;
}
