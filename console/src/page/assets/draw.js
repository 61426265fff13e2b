// Elements and drawings. Text reaches the page through textContent alone, numbers through attributes: nothing that
// comes from an object is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; a string child becomes text. */
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") node.addEventListener("click", value);
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  node.append(...children);
  return node;
}

/** Nanoseconds in three digits and the unit that fits. */
export function time(nanoseconds) {
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const [size, unit] = units.find(([size]) => nanoseconds >= size) ?? [1, "ns"];
  return `${Number((nanoseconds / size).toPrecision(3))} ${unit}`;
}

/** Bytes in binary units. */
export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${Number(count.toPrecision(3))} ${units[unit]}`;
}

/** How long ago, in one unit. */
export function age(iso, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - Date.parse(iso)) / 1000));
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** Two bars, the untuned latency above the present one, with the interval in which the median lies for 95 %. */
export function latencyBars(measured) {
  const width = 220;
  const maximum = Math.max(measured.untuned ?? 0, measured.ciHigh ?? 0, measured.p50);
  const x = (value) => (value / maximum) * (width - 4);
  const bars = svg("svg", { width, height: 26, role: "img" });
  bars.append(svg("title", {}, "untuned and present median latency"));
  if (measured.untuned) bars.append(svg("rect", { class: "before", x: 0, y: 2, height: 9, width: x(measured.untuned), rx: 2 }));
  bars.append(svg("rect", { class: "after", x: 0, y: 14, height: 9, width: Math.max(1, x(measured.p50)), rx: 2 }));
  if (measured.ciLow && measured.ciHigh) {
    bars.append(svg("line", { class: "sure", x1: x(measured.ciLow), x2: x(measured.ciHigh), y1: 18.5, y2: 18.5 }));
  }
  return bars;
}

/** The tuning curve, of pairs: the latency that was expected over the number of candidates measured. */
export function tuningCurve(points) {
  const [width, height, left, bottom, top] = [640, 220, 64, 30, 12];
  const trials = Math.max(...points.map(([trial]) => trial), 1);
  const maximum = Math.max(...points.map(([, expected]) => expected));
  const x = (trial) => left + (trial / trials) * (width - left - 12);
  const y = (expected) => top + (1 - expected / maximum) * (height - top - bottom);
  const curve = svg("svg", { id: "tuning-curve", viewBox: `0 0 ${width} ${height}`, width, role: "img" });
  curve.append(svg("title", {}, "expected latency by candidates measured"));
  for (const part of [0, 0.5, 1]) {
    const at = y(maximum * part);
    curve.append(svg("line", { class: "axis", x1: left, x2: width - 12, y1: at, y2: at }));
    curve.append(svg("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, time(maximum * part)));
  }
  // A step: the best stays the best until a better one is found.
  let path = "";
  points.forEach(([trial, expected], index) => {
    path += index === 0 ? `M${x(trial)},${y(expected)}` : `H${x(trial)}V${y(expected)}`;
  });
  curve.append(svg("path", { class: "line", d: `${path}H${x(trials)}` }));
  curve.append(svg("text", { x: width - 12, y: height - 6, "text-anchor": "end" }, `${trials} candidates`));
  return curve;
}
