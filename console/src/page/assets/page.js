// The page: follows /events and draws what it holds. Read-only.

import { age, bytes, el, latencyBars, time, tuningCurve } from "./draw.js";
import { trialTable } from "./trials.js";

const objects = new Map();
let activity = [];
let limit = 0;
let source = null;
let selected = null;
let shownReport = null;

const byId = (id) => document.getElementById(id);
const keyOf = (object) => `${object.kind}/${object.namespace}/${object.name}`;
const nameOf = (object) => (object.namespace ? `${object.namespace}/${object.name}` : object.name);
const ofKind = (kind) => [...objects.values()].filter((object) => object.kind === kind);
const newestFirst = (a, b) => (b.created ?? "").localeCompare(a.created ?? "") || keyOf(a).localeCompare(keyOf(b));
const condition = (object, type) => (object.status?.conditions ?? []).find((found) => found.type === type);
const badge = (word, extra = "") => el("span", { class: `badge ${/^[A-Za-z]+$/.test(word) ? word : ""} ${extra}` }, word);

function connect() {
  source?.close();
  source = new EventSource(`events?filter=${encodeURIComponent(byId("filter").value)}`);
  source.onopen = () => connection("live", false);
  source.onerror = () => connection("connection lost, trying again", true);
  source.addEventListener("batch", (event) => take(JSON.parse(event.data)));
}

function connection(text, off) {
  byId("connection").textContent = text;
  byId("connection").className = off ? "off" : "";
}

function take(batch) {
  if (batch.reset) {
    objects.clear();
    activity = [];
  }
  limit = batch.limit;
  batch.objects.forEach((object) => objects.set(keyOf(object), object));
  batch.gone.forEach(([kind, namespace, name]) => objects.delete(`${kind}/${namespace}/${name}`));
  activity = [...activity, ...batch.activity].slice(-200);
  drawTotals(batch.totals);
  drawNotices(batch.notices);
  draw();
}

function draw() {
  drawCompilations();
  drawPools();
  drawRuns();
  drawActivity();
  drawDetail();
}

function drawTotals(totals) {
  const order = ["Running", "Pending", "Suspended", "Succeeded", "Failed"];
  const words = order.filter((phase) => totals[phase]).map((phase) => badge(`${totals[phase]} ${phase}`, phase));
  byId("totals").replaceChildren(...words);
}

function drawNotices(notices) {
  const lines = Object.entries(notices).map(([kind, why]) => el("p", {}, `${kind}: ${why}`));
  byId("notices").replaceChildren(...lines);
}

/** Why an object is where it is: the message of Ready, where it says more than the phase. */
function why(object) {
  const ready = condition(object, "Ready");
  if (!ready || ready.status === "True") return null;
  const plain = ["Pending", "Running", "Suspended"].includes(ready.reason);
  return el("div", { class: "why" }, plain ? ready.message : `${ready.reason}: ${ready.message}`);
}

function open(object) {
  selected = keyOf(object);
  drawDetail();
  byId("detail").scrollIntoView({ block: "start" });
}

function drawCompilations() {
  const list = ofKind("ModelCompilation").sort(newestFirst).slice(0, limit);
  const bodies = list.map((object) => {
    const names = (object.spec?.targets ?? []).map((target) => target.name);
    const statuses = object.status?.targets ?? [];
    const rows = (names.length ? names : [""]).map((name, number) => {
      const at = statuses.findIndex((status) => status.name === name);
      return row(object, name, statuses[at], object.measured?.[at], number);
    });
    return el("tbody", { class: "object", "data-object": nameOf(object) }, ...rows);
  });
  const table = byId("compilations");
  table.querySelectorAll("tbody").forEach((body) => body.remove());
  table.append(...bodies);
  const all = list.length >= limit ? `The ${limit} newest are shown: filter to see others.` : "";
  byId("compilations-note").textContent = list.length ? all : "There are none.";
}

function row(object, name, status, measured, number) {
  const first = number === 0;
  const phase = object.deleting ? "Deleting" : object.status?.phase ?? "Pending";
  const verified = status?.correctness ? (status.correctness.passed ? "yes" : "no") : "";
  const gain = measured?.untuned ? `${Number((measured.untuned / measured.p50).toPrecision(3))}×` : "";
  const latency = measured ? (measured.untuned ? `${time(measured.untuned)} → ${time(measured.p50)}` : time(measured.p50)) : "";
  return el("tr", { class: first ? "" : "follows" },
    el("td", {}, first ? el("button", { class: "name", onclick: () => open(object) }, nameOf(object)) : ""),
    el("td", {}, first ? badge(phase) : "", first ? why(object) : ""),
    el("td", {}, name, status && status.phase !== object.status.phase ? el("div", { class: "soft" }, status.phase) : ""),
    el("td", {}, status?.pool ?? ""),
    el("td", {}, measured ? latencyBars(measured) : ""),
    el("td", { class: "number" }, latency),
    el("td", { class: "number" }, gain),
    el("td", {}, verified === "no" ? badge("no", "bad") : verified),
    el("td", {}, status?.cache ?? ""),
    el("td", { class: "number", "data-since": object.created ?? "" }, first && object.created ? age(object.created) : ""));
}

/** A Lease that ran out: its holder did not renew it in time. */
function expired(lease) {
  const { renewTime, leaseDurationSeconds } = lease.spec ?? {};
  if (!renewTime || !leaseDurationSeconds) return false;
  return Date.parse(renewTime) + leaseDurationSeconds * 1000 < Date.now();
}

function drawPools() {
  const leases = ofKind("Lease");
  const cards = ofKind("DevicePool").sort((a, b) => a.name.localeCompare(b.name)).map((pool) => poolCard(pool, leases));
  byId("pools").replaceChildren(...(cards.length ? cards : [el("p", { class: "note" }, "There are none.")]));
}

function poolCard(pool, leases) {
  const leasesOfPool = leases.filter((lease) => lease.pool === pool.name && lease.spec?.holderIdentity);
  const { total, leased, nodes } = pool.status?.capacity ?? {};
  const ready = condition(pool, "Ready");
  const held = leasesOfPool.length || leased || 0;
  const slots = el("div", { class: "slots" });
  for (let slot = 0; slot < Math.min(Math.max(total ?? 0, held), 200); slot += 1) {
    const state = slot < held ? (leasesOfPool[slot] && expired(leasesOfPool[slot]) ? "held expired" : "held") : "";
    slots.append(el("i", { class: state }));
  }
  const lines = leasesOfPool.map((lease) => {
    const since = lease.spec.acquireTime;
    return el("li", {}, `${lease.name}: `, lease.spec.holderIdentity, since ? el("span", { class: "soft" }, ` for ${age(since)}`) : "", expired(lease) ? badge("expired", "bad") : "");
  });
  const free = total === undefined || total === null ? `${held} held` : `${held} of ${total} held`;
  return el("div", { class: "card", "data-pool": pool.name },
    el("h3", {}, pool.name, el("span", { class: "soft" }, pool.spec?.kind ?? ""), ready && ready.status !== "True" ? badge(ready.reason, "bad") : ""),
    el("div", { class: "soft" }, `${free}, ${nodes ?? 0} nodes ready, ${pool.spec?.exclusivity ?? "Device"}`),
    slots,
    ready && ready.status !== "True" ? el("div", { class: "why" }, ready.message) : "",
    el("ul", { class: "holders" }, ...lines));
}

function drawRuns() {
  const runs = ofKind("TuningRun").sort(newestFirst);
  byId("runs-section").hidden = runs.length === 0;
  const rows = runs.map((run) => el("tr", {},
    el("td", {}, el("button", { class: "name", onclick: () => open(run) }, nameOf(run))),
    el("td", {}, badge(run.status?.phase ?? "Pending")),
    el("td", {}, run.spec?.pool ?? ""),
    el("td", { class: "number" }, String(run.status?.trials?.measured ?? "")),
    el("td", { class: "number" }, String(run.status?.trials?.failed ?? "")),
    el("td", { class: "number" }, run.status?.best?.latency ?? run.status?.progress?.expected ?? ""),
    el("td", {}, why(run) ?? ""),
    el("td", { class: "number" }, run.created ? age(run.created) : "")));
  byId("runs").querySelector("tbody").replaceChildren(...rows);
}

function drawActivity() {
  const lines = [...activity].reverse().map((change) => el("li", {},
    el("time", { datetime: change.at }, new Date(change.at).toLocaleTimeString()),
    el("span", {}, change.object),
    el("span", {}, change.what)));
  byId("activity").replaceChildren(...(lines.length ? lines : [el("li", { class: "none" }, "Nothing since this page is served.")]));
}

function drawDetail() {
  const detail = byId("detail");
  const object = selected ? objects.get(selected) : null;
  detail.hidden = !object;
  if (!object) {
    selected = null;
    shownReport = null;
    detail.replaceChildren();
    return;
  }
  // A frame that shows a report stays, or it would load anew at every change.
  const kept = shownReport?.of === selected;
  if (!kept) shownReport = null;
  const close = el("button", { onclick: () => { selected = null; drawDetail(); } }, "close");
  const state = condition(object, "Ready");
  const parts = [
    el("div", { class: "top" }, el("h2", {}, nameOf(object)), badge(object.status?.phase ?? "Pending"), close),
    object.status?.failure ? el("div", { class: "failure" }, `${object.status.failure.reason}: ${object.status.failure.message}`) : state && state.status !== "True" ? el("div", { class: "why" }, `${state.reason}: ${state.message}`) : null,
    definitionList([["model", object.spec?.model?.uri], ["digest", object.spec?.model?.digest], ["output", object.spec?.output?.uri], ["pool", object.spec?.pool]]),
    el("h3", {}, "Conditions"),
    conditionTable(object),
    ...(object.status?.targets ?? []).flatMap((status, at) => targetParts(object, status, object.measured?.[at])),
    ...(object.kind === "TuningRun" ? runParts(object) : []),
  ];
  const body = el("div", {}, ...parts.filter((part) => part !== null));
  const old = detail.querySelector(".body");
  body.className = "body";
  if (old) old.replaceWith(body);
  else detail.append(body);
  if (!kept) byId("report-view")?.remove();
  if (!byId("report-view")) detail.append(el("div", { id: "report-view" }));
}

function definitionList(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el("dl", {}, ...known.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, el("code", {}, String(value)))]));
}

function conditionTable(object) {
  const rows = (object.status?.conditions ?? []).map((found) => {
    const bad = (found.type === "Stalled" && found.status === "True") || (["Succeeded", "Verified"].includes(found.type) && found.status === "False");
    return el("tr", {}, el("td", {}, found.type), el("td", {}, badge(found.status, bad ? "bad" : "")), el("td", {}, found.reason),
      el("td", {}, found.message), el("td", { class: "number" }, found.lastTransitionTime ? age(found.lastTransitionTime) : ""));
  });
  const head = el("tr", {}, ...["condition", "state", "reason", "message", "for"].map((word) => el("th", { class: word === "for" ? "number" : "" }, word)));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
}

function targetParts(object, status, measured) {
  const correctness = status.correctness;
  const sure = measured?.ciLow ? `, 95 % sure within ${time(measured.ciLow)} to ${time(measured.ciHigh)}` : "";
  const parts = [
    el("h3", {}, `Target ${status.name} `, badge(status.phase ?? "Pending")),
    status.failure ? el("div", { class: "failure" }, `${status.failure.reason}: ${status.failure.message}`) : null,
    measured ? latencyBars(measured) : null,
    definitionList([
      ["latency", measured && `${time(measured.p50)}${sure}`],
      ["untuned", measured?.untuned && time(measured.untuned)],
      ["pool", status.pool],
      ["Job", status.jobRef?.name],
      ["precision", status.precision],
      ["largest error", correctness && `${correctness.maxAbs} absolute, ${correctness.maxRel} relative`],
      ["verified by", correctness?.executedBy],
      ["artifact", status.artifact && `${status.artifact.uri} (${bytes(status.artifact.sizeBytes)})`],
      ["digest", status.artifact?.digest],
      ["machine", status.fingerprint],
      ["compile time", status.compileTime],
      ["report", status.reportUri],
    ]),
  ];
  if (status.reportUri) {
    parts.push(el("button", { class: "report", onclick: () => showReport(object, status.name) }, "Show the report"));
  }
  return parts.filter((part) => part !== null);
}

function runParts(run) {
  const { trials, progress, best, checkpoint, ended } = run.status ?? {};
  return [
    el("h3", {}, "Search"),
    definitionList([
      ["log", run.spec?.log?.uri],
      ["trials", trials && `${trials.measured} measured, ${trials.failed} failed`],
      ["of its limits", progress && `${progress.usedPercent} %`],
      ["expected", progress && `${progress.expected}, ${progress.untuned} without tuning`],
      ["in the network", best && `${best.latency}${best.untuned ? `, ${best.untuned} without tuning` : ""}`],
      ["last segment", checkpoint && `${checkpoint.segment} (${checkpoint.digest})`],
      ["ended", ended],
    ]),
    el("button", { class: "report", onclick: () => showRun(run) }, "Show the search"),
  ];
}

async function showReport(object, target) {
  const view = byId("report-view");
  const path = ["report", object.namespace, object.name, target].map(encodeURIComponent).join("/");
  shownReport = { of: keyOf(object), target };
  view.replaceChildren(el("p", { class: "note" }, "loading"));
  const response = await fetch(`${path}/json`);
  if (!response.ok) {
    view.replaceChildren(el("div", { class: "failure" }, await response.text()));
    return;
  }
  const report = await response.json().catch(() => ({}));
  const curve = curveOf(report.details?.tuning?.curve);
  // Sandboxed: it was written beside a model that nobody trusts.
  const frame = el("iframe", { id: "report", sandbox: "", src: `${path}/html`, title: "report" });
  const drawn = curve.length ? [el("h3", {}, `Tuning curve of ${target}`), tuningCurve(curve)] : [];
  view.replaceChildren(...drawn, frame);
}

/** The points of a curve that a worker stored, those that are points. */
function curveOf(points) {
  const valid = (point) => Array.isArray(point) && point.length === 2 && point.every(Number.isFinite);
  return Array.isArray(points) ? points.filter(valid) : [];
}

/** What a run's log says of its search. */
async function showRun(run) {
  const view = byId("report-view");
  shownReport = { of: keyOf(run) };
  view.replaceChildren(el("p", { class: "note" }, "loading"));
  const path = ["run", run.namespace, run.name].map(encodeURIComponent).join("/");
  const response = await fetch(path);
  if (!response.ok) {
    view.replaceChildren(el("div", { class: "failure" }, await response.text()));
    return;
  }
  const found = await response.json().catch(() => ({}));
  const curve = curveOf(found.curve);
  const seconds = (value) => Number.isFinite(value) ? `${Number(value.toPrecision(3))} s` : null;
  const rest = found.seconds - (found.building ?? 0) - (found.executing ?? 0) - (found.proposing ?? 0);
  view.replaceChildren(
    el("h3", {}, "Tuning curve"),
    curve.length ? tuningCurve(curve) : el("p", { class: "note" }, "No candidate was faster yet."),
    el("h3", {}, "Where the time went"),
    definitionList([
      ["searching, in all", seconds(found.seconds)],
      ["making code of candidates", seconds(found.building)],
      ["executing them", seconds(found.executing)],
      ["proposing and learning", seconds(found.proposing)],
      ["comparing, waiting, storing", seconds(Math.max(0, rest))],
    ]),
    el("h3", {}, "Trials"),
    trialTable(Number.isInteger(found.segment) ? found.segment : 0, (segment) => `${path}/trials/${segment}`));
}

let timer = null;
byId("filter").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(connect, 250);
});
// Ages go on while nothing changes.
setInterval(draw, 10_000);
connect();
