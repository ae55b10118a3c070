// Numbers with units, and charts of the last minutes. Put before page.js into one script, in one block.

const KEPT_S = 300;
// A chart shows the shortest of these that holds all that is known.
const SPANS_S = [60, 120, KEPT_S];

const byId = (id) => document.getElementById(id);

const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

const makeSvg = (name, attributes = {}) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

const put = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

// Numbers with units: three digits, which is what a glance takes in.

const digits = (value) => {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return Math.round(value).toString();
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
};

const scaled = (value, base, units) => {
  let at = 0;
  // What would be rounded up to the next unit is one of it.
  while (at + 1 < units.length && Math.abs(value) >= base - 0.5) {
    value /= base;
    at += 1;
  }
  return [value, units[at]];
};

const count = (value) => {
  if (value === null) return "–";
  if (Math.abs(value) < 999.5 && Number.isInteger(value)) return value.toString();
  const [number, unit] = scaled(value, 1000, ["", " k", " M", " G", " T"]);
  return digits(number) + unit;
};
const perSecond = (value) => (value === null ? "–" : `${count(value)}/s`);
const bytes = (value) => {
  if (value === null) return "–";
  const [number, unit] = scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
  return `${unit === "B" ? Math.round(number) : digits(number)} ${unit}`;
};
const bytesPerSecond = (value) => (value === null ? "–" : `${bytes(value)}/s`);
const nanos = (value) => {
  if (!value) return "–";
  const [number, unit] = scaled(value, 1000, ["ns", "µs", "ms", "s"]);
  return `${unit === "ns" ? Math.round(number) : digits(number)} ${unit}`;
};
const micros = (value) => nanos(value * 1000);
const percent = (share) => {
  if (share === null) return "–";
  // Never 100 % while there are misses.
  const tenths = share >= 1 ? 1000 : Math.min(999, Math.round(share * 1000));
  return tenths === 1000 ? "100 %" : `${(tenths / 10).toFixed(1)} %`;
};
const duration = (seconds) => {
  const whole = Math.floor(seconds);
  const parts = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([number]) => number > 0);
  const told = first < 0 ? [[0, "s"]] : parts.slice(first, first + 2);
  return told.map(([number, unit]) => `${number} ${unit}`).join(" ");
};

// Without zeros behind the point.
const round = (text) => text.replace(/(\.[0-9]*?)0+(?![0-9])/, "$1").replace(/\.(?![0-9])/, "");

// The end of an axis: a round number above all values.
const roundUp = (value, base) => {
  if (value <= 0) return 1;
  const power = base ** Math.floor(Math.log(value) / Math.log(base));
  const steps = base === 1024 ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 5, 10];
  if (base === 1024) return power * steps.find((step) => step * power >= value);
  const ten = 10 ** Math.floor(Math.log10(value));
  return ten * steps.find((step) => step * ten >= value * 0.999999);
};

// A chart of the last minutes: areas on top of each other, or lines. Its legend names the series with their figures, so
// that no meaning lies in a colour alone.
class Chart {
  constructor(parent, { title, names, format, base = 10, isStacked = true, most = null, least = null }) {
    Object.assign(this, { title, format, base, isStacked, fixed: most, least });
    this.svg = makeSvg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img" });
    for (const y of [0.5, 50]) this.svg.append(makeSvg("path", { class: "grid", d: `M0 ${y}H100` }));
    this.most = make("div", { class: "most", "aria-hidden": "true" });
    this.legend = make("ul", { class: "legend" });
    this.series = [];
    const plot = make("div", { class: "plot" }, this.svg);
    this.begin = make("span");
    const axis = make("div", { class: "axis", "aria-hidden": "true" }, this.begin, make("span", {}, "now"));
    parent.append(make("div", { class: "chart" }, this.most, plot, axis), this.legend);
    names.forEach((name) => this.addSeries(name));
  }

  addSeries(name) {
    const style = `s${this.series.length % 10}`;
    const area = this.isStacked ? makeSvg("path", { class: `area ${style}` }) : null;
    const line = makeSvg("path", { class: `line ${style}` });
    // Behind those before it, whose edge it may share.
    const [behind] = this.series.flatMap((before) => before.area ?? before.line).slice(-1);
    this.svg.insertBefore(line, behind ?? null);
    if (area) this.svg.insertBefore(area, line);
    const value = make("b", {}, "–");
    this.legend.append(make("li", {}, make("span", { class: `swatch ${style}` }), make("span", { class: "name" }, name), value));
    this.series.push({ name, area, line, value });
  }

  // `points` are pairs of the seconds ago and the values, or null where nothing is known; `now` are the figures of the
  // legend.
  draw(points, now) {
    const sums = points.map(([, values]) => values && (this.isStacked ? stack(values) : values));
    let most = this.fixed;
    if (most === null) {
      const all = sums.flatMap((values) => (values ? [Math.max(...values.map((value) => value ?? 0))] : []));
      most = roundUp(Math.max(0, ...all), this.base);
      if (this.least !== null) most = Math.max(most, 10 * this.least);
    }
    const from = this.least === null ? "" : `logarithmic, ${round(this.format(this.least))} to `;
    put(this.most, from + round(this.format(most)));
    const span = SPANS_S.find((seconds) => seconds >= (points[0]?.[0] ?? 0)) ?? KEPT_S;
    put(this.begin, `${span / 60} min ago`);
    const x = (at) => (100 - (points[at][0] / span) * 100).toFixed(2);
    const height = (value) =>
      this.least === null ? value / most : Math.max(0, Math.log(value / this.least) / Math.log(most / this.least));
    const y = (value) => (100 - Math.min(1, height(value)) * 98.5).toFixed(2);
    this.series.forEach(({ area, line }, number) => {
      let [lines, areas] = ["", ""];
      for (const [begin, end] of runs(sums, number)) {
        const upper = [];
        const lower = [];
        for (let at = begin; at < end; at += 1) {
          upper.push(`${x(at)} ${y(sums[at][number])}`);
          lower.push(`${x(at)} ${y(number > 0 && this.isStacked ? sums[at][number - 1] : 0)}`);
        }
        lines += `M${upper.join("L")}`;
        areas += `M${upper.join("L")}L${lower.reverse().join("L")}Z`;
      }
      line.setAttribute("d", lines);
      if (area) area.setAttribute("d", areas);
    });
    const told = this.series.map(({ name, value }, number) => {
      const text = this.format(now[number]);
      put(value, text);
      return `${name} ${text}`;
    });
    this.svg.setAttribute("aria-label", `${this.title}, the last ${span / 60} minutes. Now: ${told.join(", ")}`);
  }
}

const stack = (values) => {
  let sum = 0;
  return values.map((value) => (sum += value));
};

// Beginnings and ends of runs of points that have a value, two at least.
const runs = (rows, number) => {
  const found = [];
  let begin = null;
  for (let at = 0; at <= rows.length; at += 1) {
    const isThere = at < rows.length && rows[at] !== null && rows[at][number] !== null;
    if (isThere && begin === null) begin = at;
    if (!isThere && begin !== null) {
      if (at - begin > 1) found.push([begin, at]);
      begin = null;
    }
  }
  return found;
};

// Parts are names, numbers and which colour they have.
const bar = (element, parts, total, label) => {
  while (element.children.length < parts.length) element.append(make("span", { class: `s${parts[element.children.length][2]}` }));
  parts.forEach(([, value], at) => {
    element.children[at].style.flex = `${Math.max(0, value / Math.max(total, 1))} 0 0`;
    element.children[at].hidden = value <= 0;
  });
  element.setAttribute("aria-label", label);
};

const legend = (list, parts, format) => {
  parts.forEach(([name, value], at) => {
    if (!list.children[at]) {
      const swatch = make("span", { class: `swatch s${parts[at][2]}` });
      list.append(make("li", {}, swatch, make("span", { class: "name" }), make("b")));
    }
    put(list.children[at].children[1], name);
    put(list.children[at].children[2], format(value));
  });
};

// A list of terms and what they are; `rows` are names, texts and notes.
const facts = (list, rows) => {
  rows.forEach(([name, text, note], at) => {
    if (!list.children[at]) list.append(make("div", {}, make("dt"), make("dd", {}, make("span"), make("span", { class: "quiet" }))));
    const [term, description] = list.children[at].children;
    put(term, name);
    put(description.children[0], text);
    put(description.children[1], note ?? "");
  });
  while (list.children.length > rows.length) list.lastChild.remove();
};
