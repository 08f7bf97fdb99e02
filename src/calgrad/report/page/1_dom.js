// Building elements, and writing numbers. Text enters the page as text nodes only: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const grouped = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
const fixed = (x, digits) => (Number.isFinite(x) ? x.toFixed(digits) : "–");
const percent = (x, digits = 2) => (Number.isFinite(x) ? `${(100 * x).toFixed(digits)} %` : "–");
const points = (x, digits = 1) => `${x > 0 ? "+" : x < 0 ? "−" : ""}${Math.abs(100 * x).toFixed(digits)}`;
const range = (low, high, digits = 2) => `${(100 * low).toFixed(digits)} to ${(100 * high).toFixed(digits)}`;
const pValue = (p) => (p === null || p === undefined ? "–" : p < 0.0015 ? "≤ 0.001" : p.toFixed(3));
// Probabilities next to 1 and 0, where two decimals would claim too much.
const nearOne = (p) => (p > 0.99999 ? "over 99.999 %" : percent(p, p > 0.999 ? 3 : 1));
const nearZero = (p) => (p < 0.00001 ? "under 0.001 %" : percent(p, p < 0.001 ? 3 : 1));
const short = (text, length = 28) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
const many = (n, word) => `${grouped(n)} ${word}${n === 1 ? "" : "s"}`;

// A group of buttons of which one is pressed.
function choice(label, options, current, pick) {
  const group = el("span", { class: "buttons" });
  for (const [value, text] of options) {
    group.append(el("button", { type: "button", "aria-pressed": String(value === current), onclick: () => pick(value) }, text));
  }
  return el("div", { class: "choice", role: "group", "aria-label": label }, el("span", {}, label), group);
}

function dropdown(label, options, current, pick) {
  const list = el("select", { onchange: (event) => pick(event.target.value) });
  for (const [value, text] of options) list.append(el("option", { value, selected: value === current }, text));
  return el("label", { class: "choice" }, el("span", {}, label), list);
}

// Columns: {title, key(row) -> sortable, show(row) -> node or text, left, hint}. `order` is {column, down} and is kept by the caller.
function sortableTable(caption, columns, rows, order, mark) {
  const body = el("tbody");
  const head = columns.map((column, i) => el("th", { scope: "col", class: column.left && "left", title: column.hint },
    el("button", { type: "button", onclick: () => { order.down = order.column === i ? !order.down : false; order.column = i; sort(); } }, column.title)));
  function sort() {
    const key = columns[order.column].key;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : (a ?? Infinity) - (b ?? Infinity));
    const sorted = [...rows].sort((a, b) => (order.down ? -1 : 1) * compare(key(a), key(b)));
    head.forEach((th, i) => (i === order.column ? th.setAttribute("aria-sort", order.down ? "descending" : "ascending") : th.removeAttribute("aria-sort")));
    body.replaceChildren(...sorted.map((row) => el("tr", mark ? mark(row) : {},
      columns.map((column, i) => el("td", { class: i ? column.left && "left" : "name" }, column.show(row))))));
  }
  sort();
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, head)), body));
}

function plainTable(caption, titles, rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, titles.map((t) => el("th", { scope: "col" }, t)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: i ? null : "name" }, cell)))))));
}
