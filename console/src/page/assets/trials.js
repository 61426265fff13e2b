// The table of a run's trials: the latest segments of its log first, sorted by the column that was clicked. Bounded: a page
// keeps no more rows than it says.

import { el, time } from "./draw.js";

/** Rows after which no further segment is loaded at once. */
const ENOUGH = 200;
/** Rows that a page keeps at most. */
const MOST = 2000;

const ratio = (value) => (value === null ? "" : `${Number((value * 100).toPrecision(3))} %`);

/** Title, value by which rows are sorted, and text of each column; `number` aligns and sorts as numbers. */
const COLUMNS = [
  ["#", (trial) => trial.number, (trial) => String(trial.number), true],
  ["program", (trial) => trial.program, (trial) => trial.program, false],
  ["template", (trial) => trial.template, (trial) => trial.template, false],
  ["decisions", (trial) => trial.decisions, (trial) => trial.decisions, false],
  ["class", (trial) => trial.class, (trial) => trial.class, false],
  ["time", (trial) => trial.nanoseconds, (trial) => (trial.nanoseconds === null ? "" : time(trial.nanoseconds)), true],
  ["of the untuned", (trial) => trial.ratio, (trial) => ratio(trial.ratio), true],
  ["error", (trial) => trial.cause, (trial) => trial.cause, false],
];

/** Trials that failed have no time: they come last, whichever way rows are sorted. */
function compare(column, up) {
  const [, value, , number] = COLUMNS[column];
  return (one, other) => {
    const [a, b] = [value(one), value(other)];
    if (number && (a === null || b === null)) return (a === null) - (b === null);
    const order = number ? a - b : a.localeCompare(b);
    return (up ? order : -order) || one.number - other.number;
  };
}

/** The table of the trials of a run whose log's last segment is `last`; `path` gives the path of a segment. */
export function trialTable(last, path) {
  const state = { trials: [], next: last, column: 0, up: false, loading: false, left: 0 };
  const heads = COLUMNS.map(([title, , , number], column) => {
    const button = el("button", { class: "sort", type: "button", onclick: () => sort(column) }, title);
    return el("th", { class: number ? "number" : "", "aria-sort": "none" }, button);
  });
  const body = el("tbody", {});
  const note = el("p", { class: "note" });
  const more = el("button", { class: "more", type: "button", onclick: () => load() }, "Show earlier trials");
  const table = el("table", { id: "trials" }, el("thead", {}, el("tr", {}, ...heads)), body);

  function sort(column) {
    state.up = state.column === column ? !state.up : true;
    state.column = column;
    drawRows();
  }

  function drawRows() {
    heads.forEach((head, column) => {
      head.setAttribute("aria-sort", column !== state.column ? "none" : state.up ? "ascending" : "descending");
    });
    const sorted = [...state.trials].sort(compare(state.column, state.up));
    body.replaceChildren(...sorted.map((trial) => el("tr", {}, ...COLUMNS.map(([, , text, number]) =>
      el("td", { class: number ? "number" : "text" }, text(trial))))));
  }

  /** Numbers count back from the latest trial, since how many came before is not known until they are loaded. */
  function take(trials) {
    for (const trial of trials.reverse()) {
      if (state.trials.length < MOST) state.trials.push({ ...trial, number: -state.trials.length });
    }
  }

  async function load() {
    if (state.loading) return;
    state.loading = true;
    const enough = state.trials.length + ENOUGH;
    let why = "";
    while (state.next > 0 && state.trials.length < Math.min(enough, MOST)) {
      const response = await fetch(path(state.next));
      if (!response.ok) {
        why = await response.text();
        break;
      }
      const found = await response.json().catch(() => ({}));
      take(Array.isArray(found.trials) ? found.trials : []);
      state.left += Number.isFinite(found.more) ? found.more : 0;
      state.next -= 1;
    }
    state.loading = false;
    const full = state.trials.length >= MOST;
    more.hidden = full || state.next < 1;
    const bound = full ? ` A page keeps no more than ${MOST}: the rest is in the log.` : "";
    const left = state.left ? ` ${state.left} more of these segments are in the log alone.` : "";
    note.textContent = `${why}${state.trials.length} trials are shown, 0 is the latest.${bound}${left}`;
    drawRows();
  }

  load();
  return el("div", {}, el("div", { class: "scroll trials" }, table), note, more);
}
