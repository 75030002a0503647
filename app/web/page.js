"use strict";
// Asks POST /v1/optimize what the form says and shows the answer. What values may be is the
// service's to say: it names the field, and its words are shown beside it.

const KEY = "warpwright-key";
const ROUTE = new URL("v1/optimize", location.href).href;
const BOUNDS = {
  math: "the MATH warps, which hardly wait",
  loads: "the SM's own load path",
  l2: "the L2",
  memory: "device memory",
  ring_depth: "too few slots in the ring for the latency",
  latency: "the latency of loads, with too few iterations to hide it",
  copies: "copies of operands that TMA can't take as they lie",
  launch: "the launch",
  epilogue: "the epilogue",
};
const PARTS = { math: "MATH", wait: "MATH wait", launch: "launch", epilogue: "epilogue", copy: "copies" };
const CLASSES = { copy: "copies" };

const byId = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString("en");
const time = (us) => `${us.toLocaleString("en", { maximumFractionDigits: us < 10 ? 3 : 1 })} µs`;
const percent = (share) => `${(100 * share).toFixed(share < 0.001 && share > 0 ? 3 : 1)} %`;

function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

// The form

const ops = document.querySelectorAll("input[name=op]");
const chosen = () => document.querySelector(`fieldset[data-op="${document.querySelector("input[name=op]:checked").value}"]`);

function showForm() {
  for (const set of document.querySelectorAll("fieldset[data-op]")) {
    set.hidden = set.disabled = set !== chosen();
  }
  clearFaults();
}

/** What a control says: undefined where it is left as it is. Throws SyntaxError for no JSON. */
function valueOf(control) {
  const text = control.value.trim();
  if (text === "" || text === control.dataset.default) return undefined;
  if (control.dataset.type === "json") return JSON.parse(text);
  const whole = control.dataset.type === "integer" && /^[+-]?\d+$/.test(text);
  return whole && Number.isSafeInteger(Number(text)) ? Number(text) : text;
}

/** The question that the form is, or null where a field of JSON is none. */
function questionOf(set) {
  const question = set.dataset.op === "gemm" ? {} : { op: set.dataset.op };
  let whole = true;
  for (const control of set.querySelectorAll("[name]")) {
    try {
      const value = valueOf(control);
      if (value !== undefined) question[control.name] = value;
    } catch (error) {
      whole = false;
      showFault(control, `must be JSON: ${error.message}`);
    }
  }
  return whole ? question : null;
}

// Faults, each by its field

function clearFaults() {
  for (const note of document.querySelectorAll(".error")) note.textContent = "";
  for (const control of document.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
  byId("problem").hidden = true;
}

function showFault(control, message) {
  const note = byId(control === byId("key-value") ? "key-error" : `${control.id}-error`);
  note.textContent += (note.textContent && "; ") + message;
  control.setAttribute("aria-invalid", "true");
  const folded = control.closest("details");
  if (folded) folded.open = true;
}

/** Show a problem document: what names fields of the form beside them, all else above. */
function showProblem(problem, set) {
  const rest = [];
  const faults = problem.errors ?? (problem.core ?? []).map((field) => ({ field, message: problem.detail }));
  for (const { field, message } of faults) {
    const [name] = field.split(".");
    const control = set.querySelector(`[name="${CSS.escape(name)}"]`);
    if (!control) rest.push(`${field}: ${message}`);
    else if (problem.core && control.hasAttribute("aria-invalid")) continue;
    else showFault(control, field === name ? message : `${field}: ${message}`);
  }
  if (problem.status === 401 || problem.status === 403) {
    byId("key").hidden = false;
    showFault(byId("key-value"), problem.detail);
  } else if (faults.length === 0) {
    rest.push(problem.detail);
  }
  if (rest.length) {
    const words = [problem.title, ...rest, problem.instance ?? ""].filter(Boolean);
    byId("problem").replaceChildren(...words.map((text) => element("p", text)));
    byId("problem").hidden = false;
  }
  document.querySelector("[aria-invalid]")?.focus();
}

// The answer

function configWords(config) {
  const several = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;
  if ("consumers" in config) {
    const words = [`${config.kind} kernel`, several(config.consumers, "consumer warp")];
    if (config.producers) words.push(several(config.producers, "producer warp"));
    if (config.depth) words.push(`${several(config.depth, "slot")} of ${count(config.chunk_bytes)} bytes`);
    if (config.team > 1) words.push(`teams of ${config.team}`);
    return words.join(", ");
  }
  const words = [
    `${config.tile_m}×${config.tile_n}×${config.tile_k}`,
    several(config.stages, "stage"),
    several(config.math_warpgroups, "MATH warpgroup"),
  ];
  if (config.dma_warps > 1) words.push(several(config.dma_warps, "DMA warp"));
  if (config.cluster_m * config.cluster_n > 1) words.push(`clusters of ${config.cluster_m}×${config.cluster_n}`);
  if (config.split_k > 1) words.push(`split-K ${config.split_k}`);
  if (config.mma_in_flight) words.push(`${config.mma_in_flight} MMA in flight`);
  if (config.register_split) words.push(`register split ${config.register_split}`);
  if (config.raster_group > 1) words.push(`raster groups of ${config.raster_group}`);
  return words.join(", ");
}

function proofWords({ status, space, scope, undecided, gap }) {
  const others = count(space.configurations - 1);
  const left = space.excluded_by_constraints;
  const allowed = left
    ? ` ${count(left)} more are legal and left out by the constraints.`
    : ` All ${count(space.legal)} legal configurations competed.`;
  if (status === "optimal") {
    const how = `${count(scope.refuted_by_group_bound)} in groups, ${count(scope.refuted_exactly)} by themselves, ` +
      "the rest event by event";
    return `Proved best: Z3 excluded the ${others} others (${how}).${allowed}`;
  }
  if (status === "timeout") {
    return `Not proved in time: ${count(undecided)} of the ${others} others are undecided, the best of them ` +
      `at most ${percent(gap)} better.${allowed}`;
  }
  return `No proof was asked for.${allowed}`;
}

function wordsOf(answer) {
  const { predicted, kernel, device } = answer;
  const rate = "tflops" in predicted
    ? `${predicted.tflops.toFixed(1)} TFLOP/s`
    : `${(predicted.bytes_per_us / 1e6).toFixed(2)} TB/s`;
  const clock = predicted.clock_mhz === null ? "" : ` at ${count(predicted.clock_mhz)} MHz`;
  const words = [
    `Predicted to take ${time(predicted.time_us)} (${rate})${clock} on ${device.title}.`,
    `What bounds it: ${BOUNDS[predicted.bound]}.`,
    proofWords(answer.proof),
    `A launch of ${count(kernel.grid)} CTAs of ${count(kernel.threads)} threads, each CTA with ` +
      `${count(kernel.smem_bytes)} bytes of shared memory` +
      (kernel.registers_per_thread === null ? "." : `, each thread with ${kernel.registers_per_thread} registers.`),
  ];
  if (answer.specialising) words.push(`Dividing the warps: ${answer.specialising}.`);
  if (answer.source === "measured") {
    words.push("A verification on this host's GPU found this one faster than the model's own pick.");
  }
  if (answer.copied_operands?.length) {
    words.push(`Copied first, since TMA can't take it as it lies: ${answer.copied_operands.join(", ").toUpperCase()}.`);
  }
  if (!answer.fits_device_memory) words.push("It does not fit into the device's memory: no launch is possible.");
  if (device.must_measure.length) {
    words.push(`The profile of ${device.name} lacks measurements without which this means little: ${device.must_measure.join(", ")}.`);
  }
  return words;
}

function showBreakdown({ breakdown, time_us }) {
  const bar = [], list = [];
  for (const [part, words] of Object.entries(PARTS)) {
    const us = breakdown[`${part}_us`];
    if (us === 0) continue;
    const name = CLASSES[part] ?? part;
    const piece = element("span", "", name);
    piece.style.flexGrow = us / time_us; // by the object model, which the content policy lets through
    bar.push(piece);
    list.push(element("li", `${words} ${time(us)}, ${percent(us / time_us)}`, name));
  }
  byId("bar").replaceChildren(...bar);
  byId("parts").replaceChildren(...list);
}

/** The members of a configuration that are not the pick's. */
function differences(config, pick) {
  const names = Object.keys(config).filter((name) => config[name] !== pick[name]);
  return names.map((name) => `${name} ${config[name]}`).join(", ");
}

function showAlternatives({ alternatives, config }) {
  byId("listed").hidden = alternatives.length === 0;
  byId("alternatives").replaceChildren(...alternatives.map((each) => {
    const row = element("tr");
    const gap = each.gap === null ? "–" : percent(each.gap);
    const cells = [differences(each.config, config), time(each.time_us), gap, time(each.wait_us),
      `${count(each.smem_bytes)} B`, each.registers_per_thread ?? "–"];
    row.append(...cells.map((text) => element("td", text)));
    return row;
  }));
}

// The same elsewhere: for POSIX shells

const quoted = (text) => (/^[\w.,:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function curlOf(question, key) {
  const parts = ["curl -sS", quoted(ROUTE), "-H 'Content-Type: application/json'"];
  if (key) parts.push('-H "Authorization: Bearer $WARPWRIGHT_API_KEY"');
  return [...parts, `-d ${quoted(JSON.stringify(question))}`].join(" ");
}

function commandOf(question) {
  const { m, n, k, ...options } = question;
  const words = Object.entries(options).map(([name, value]) => {
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return `--${name.replaceAll("_", "-")} ${quoted(text)}`;
  });
  return ["warpwright optimize", ...(m === undefined ? [] : [m, n, k]), ...words, "--json"].join(" ");
}

function showAnswer(answer, question, key) {
  byId("pick").textContent = configWords(answer.config);
  byId("words").replaceChildren(...wordsOf(answer).map((text) => element("li", text)));
  showBreakdown(answer.predicted);
  showAlternatives(answer);
  byId("curl").textContent = curlOf(question, key);
  byId("command").textContent = commandOf(question);
  byId("json").textContent = JSON.stringify(answer, null, 2);
  byId("answer").hidden = false;
  byId("pick").focus();
}

// Asking

async function ask(question, key) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(ROUTE, { method: "POST", headers, body: JSON.stringify(question) });
  } catch (error) {
    return [null, { title: "The service can't be reached", detail: error.message }];
  }
  try {
    const body = await response.json();
    return response.ok ? [body, null] : [null, body];
  } catch {
    return [null, { title: "The answer is not the service's", detail: `HTTP ${response.status}, and no JSON` }];
  }
}

async function onSubmit(event) {
  event.preventDefault();
  if (byId("ask").disabled) return;
  clearFaults();
  byId("answer").hidden = true;
  const set = chosen();
  const question = questionOf(set);
  const key = byId("key-value").value.trim();
  if (/[^\x21-\x7e]/.test(key)) showFault(byId("key-value"), "holds characters that no key has");
  const wrong = document.querySelector("[aria-invalid]");
  if (wrong) {
    wrong.focus();
    return;
  }
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
  byId("ask").disabled = true;
  byId("status").textContent = "Asking …";
  const [answer, problem] = await ask(question, key);
  byId("ask").disabled = false;
  byId("status").textContent = "";
  if (problem) showProblem(problem, set);
  else showAnswer(answer, question, key);
}

async function onCopy(event) {
  const source = byId(event.currentTarget.dataset.copies);
  getSelection().selectAllChildren(source); // what is left to do by hand where the next is refused
  try {
    await navigator.clipboard.writeText(source.textContent);
    byId("status").textContent = "Copied.";
  } catch {
    byId("status").textContent = "Selected: the browser lets this page copy nothing by itself.";
  }
}

const kept = sessionStorage.getItem(KEY);
if (kept) {
  byId("key-value").value = kept;
  byId("key").hidden = false;
}
for (const op of ops) op.addEventListener("change", showForm);
for (const button of document.querySelectorAll("[data-copies]")) button.addEventListener("click", onCopy);
byId("question").addEventListener("submit", onSubmit);
showForm();
