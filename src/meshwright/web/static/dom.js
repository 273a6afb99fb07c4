// Small helpers: elements, numbers with units, copying and saving.

export const $ = (id) => document.getElementById(id);

/** An element with attributes and children; `on*` attributes are listeners, null ones are left out. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const fill = (node, ...children) => node.replaceChildren(...children);

const GIB = 2 ** 30;
export const gib = (bytes) => (bytes / GIB).toFixed(1);
export const seconds = (value) =>
  value < 1 ? `${Number((value * 1e3).toPrecision(3))} ms` : `${Number(value.toPrecision(3))} s`;
export const whole = (value) => Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(3);
export const percent = (value) => `${value >= 0 ? "+" : "-"}${Math.abs(value * 100).toFixed(1)}%`;

/** The degrees that are not 1, in the field's order. */
export function layoutWords(layout, execution) {
  const words = ["tp", "pp", "vpp", "cp", "ep", "etp"].filter((name) => layout[name] > 1)
    .map((name) => name.toUpperCase() + layout[name]);
  words.push(`DP${whole(layout.dp)}`, `MBS${layout.mbs}`);
  if (execution && execution.fsdp) words.push("FSDP");
  return words.join(" ");
}

export function recomputeWords(recompute) {
  if (recompute.granularity === "selective") return `selective (${recompute.modules.join(", ")})`;
  return recompute.granularity;
}

export async function copy(text, button) {
  try { await navigator.clipboard.writeText(text); }
  catch {
    const area = el("textarea", { "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const before = button.dataset.words ?? button.textContent;
  button.dataset.words = before;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}

export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Put a drawing of the server in its place. */
export function draw(node, picture) {
  node.innerHTML = picture ? picture.svg : "";
}

export function findingsList(findings) {
  const items = findings.map((one) => el("li", { class: one.severity },
    el("b", {}, one.severity), ` ${one.message}`,
    one.fix ? el("span", { class: "fix" }, ` Fix: ${one.fix}`) : null,
    el("code", {}, one.rule), one.line ? el("span", { class: "soft" }, ` line ${one.line}`) : null));
  return el("ul", { class: "findings" }, ...items);
}
