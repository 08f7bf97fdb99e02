// Charts as inline SVG, drawn for the width they get, with values on hover and on the arrow keys.

const redraw = new WeakMap();
const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (!target.isConnected) { watcher.unobserve(target); continue; }
    const { draw, width } = redraw.get(target);
    if (Math.abs(target.clientWidth - width) > 1) draw();
  }
});

// A host that draws itself: paint(width) returns {picture, targets, mode, label}.
function chart(paint) {
  const host = el("div", { class: "chart" });
  const draw = () => {
    const width = Math.max(260, host.clientWidth || 560);
    redraw.set(host, { draw, width: host.clientWidth });
    const { picture, targets = [], mode = "near", label } = paint(width);
    host.replaceChildren(picture);
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", label);
    if (targets.length) hoverable(picture, targets, mode);
  };
  draw();
  watcher.observe(host);
  requestAnimationFrame(() => host.isConnected && Math.abs(host.clientWidth - redraw.get(host).width) > 1 && draw());
  return host;
}

// targets: {x, y, title, lines}. mode "x": the nearest column; "near": the nearest point.
function hoverable(picture, targets, mode) {
  const tip = document.getElementById("tip");
  const ring = svg("circle", { class: "ring", r: 8, visibility: "hidden" });
  picture.append(ring);
  picture.setAttribute("tabindex", "0");
  let active = -1;
  const show = (index, client) => {
    active = index;
    const target = targets[index];
    ring.setAttribute("cx", target.x); ring.setAttribute("cy", target.y); ring.setAttribute("visibility", "visible");
    tip.replaceChildren(el("b", {}, target.title), ...target.lines.map((line) => el("div", {}, line)));
    tip.hidden = false;
    const box = picture.getBoundingClientRect();
    const scale = box.width / picture.viewBox.baseVal.width;
    const [cx, cy] = client || [box.left + target.x * scale, box.top + target.y * scale];
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(room, cx + 16))}px`;
    tip.style.top = `${Math.max(8, cy - tip.offsetHeight - 14)}px`;
  };
  const hide = () => { active = -1; tip.hidden = true; ring.setAttribute("visibility", "hidden"); };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const scale = picture.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    const far = (t) => Math.abs(t.x - x) + (mode === "x" ? 0.001 : 1) * Math.abs(t.y - y);
    show(targets.reduce((best, t, i) => (far(t) < far(targets[best]) ? i : best), 0), [event.clientX, event.clientY]);
  });
  picture.addEventListener("pointerleave", hide);
  picture.addEventListener("blur", hide);
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); show(active < 0 ? (step > 0 ? 0 : targets.length - 1) : (active + step + targets.length) % targets.length); }
    else if (event.key === "Escape") hide();
  });
}

const scale = (from, to, start, end) => (x) => start + ((x - from) / (to - from)) * (end - start);
const path = (pairs) => pairs.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");

function ticksOf(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
  return { ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

function xAxis(x, low, high, y, { label, scaleBy = 1, count = 5, top, whole } = {}) {
  // Of epochs, whole ones only.
  const { ticks, digits } = ticksOf(low * scaleBy, high * scaleBy, whole ? Math.max(1, Math.min(count, Math.floor(high - low))) : count);
  return svg("g", {}, ticks.map((t) => [
    top !== undefined && svg("line", { class: "gridline", x1: x(t / scaleBy), x2: x(t / scaleBy), y1: top, y2: y }),
    svg("text", { class: "soft", x: x(t / scaleBy), y: y + 17, "text-anchor": "middle" }, t.toFixed(digits))]),
  svg("line", { class: "axis", x1: x(low), x2: x(high), y1: y, y2: y }),
  label && svg("text", { x: (x(low) + x(high)) / 2, y: y + 36, "text-anchor": "middle" }, label));
}

function yAxis(y, low, high, left, right, { label, scaleBy = 1, count = 5 } = {}) {
  const { ticks, digits } = ticksOf(low * scaleBy, high * scaleBy, count);
  const middle = (y(low) + y(high)) / 2;
  return svg("g", {}, ticks.map((t) => [
    svg("line", { class: "gridline", x1: left, x2: right, y1: y(t / scaleBy), y2: y(t / scaleBy) }),
    svg("text", { class: "soft", x: left - 7, y: y(t / scaleBy) + 4, "text-anchor": "end" }, t.toFixed(digits))]),
  label && svg("text", { x: left - 40, y: middle, transform: `rotate(-90 ${left - 40} ${middle})`, "text-anchor": "middle" }, label));
}

// ------------------------------------------------------------------------------------------------------------ reliability

const MARKS = [
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  (x, y, r) => `M${x} ${y - 1.3 * r}L${x + 1.3 * r} ${y}L${x} ${y + 1.3 * r}L${x - 1.3 * r} ${y}Z`,
  (x, y, r) => `M${x} ${y - 1.2 * r}L${x + 1.2 * r} ${y + r}H${x - 1.2 * r}Z`,
  (x, y, r) => `M${x} ${y + 1.2 * r}L${x + 1.2 * r} ${y - r}H${x - 1.2 * r}Z`,
];
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const seriesStyle = (i) => ({ stroke: `var(--s${i % 8})`, dash: DASHES[Math.floor(i / 8) % 4], mark: MARKS[i % MARKS.length] });

function swatch(i) {
  const { stroke, dash, mark } = seriesStyle(i);
  return svg("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke, "stroke-width": 2, "stroke-dasharray": dash }), svg("path", { d: mark(13, 6, 3.6), fill: stroke }));
}

function square(width, label, from) {
  const side = Math.min(width, 560), left = 52, right = width - 14, top = 10, bottom = top + Math.max(230, side - 150);
  const x = scale(from, 1, left, right), y = scale(from, 1, bottom, top);
  const clip = `c${++square.count}`;
  const frame = svg("g", {}, yAxis(y, from, 1, left, right, { label: "right (%)", scaleBy: 100 }),
    xAxis(x, from, 1, bottom, { scaleBy: 100, top }));
  return { left, right, top, bottom, x, y, frame, clip,
    clipPath: svg("clipPath", { id: clip }, svg("rect", { x: left - 5, y: top - 5, width: right - left + 10, height: bottom - top + 10 })),
    diagonal: svg("line", { class: "diagonal", x1: x(from), x2: x(1), y1: y(from), y2: y(1) }), label };
}
square.count = 0;

// The strip under a diagram: how many samples, on a logarithmic scale, for most bins of a good net are nearly empty.
function countStrip(f, bars, from, height, label) {
  const base = f.bottom + 34 + height;
  const most = Math.max(...bars.map((b) => b.n), 10);
  const y = scale(0, Math.log10(most), base, base - height);
  const tens = [];
  for (let t = 1; t <= most; t *= 10) tens.push(t);
  const shown = tens.length > 4 ? tens.filter((_, i) => i % 2 === 0) : tens;
  return svg("g", {},
    shown.map((t) => [svg("line", { class: "gridline", x1: f.left, x2: f.right, y1: y(Math.log10(t)), y2: y(Math.log10(t)) }),
      svg("text", { class: "soft", x: f.left - 7, y: y(Math.log10(t)) + 4, "text-anchor": "end" }, t >= 1e6 ? `${t / 1e6}M` : t >= 1e3 ? `${t / 1e3}k` : t)]),
    svg("g", { "clip-path": `url(#${f.clip}b)` }, bars.map((b) => {
      const x0 = f.x(b.low), x1 = f.x(b.high), thin = Math.max(1.5, x1 - x0 - 1), h = Math.max(1.5, base - y(Math.log10(Math.max(b.n, 1))));
      return svg("rect", { class: "bars", x: (x0 + x1 - thin) / 2, width: thin, y: base - h, height: h });
    })),
    svg("clipPath", { id: `${f.clip}b` }, svg("rect", { x: f.left, y: base - height - 4, width: f.right - f.left, height: height + 4 })),
    svg("line", { class: "axis", x1: f.left, x2: f.right, y1: base, y2: base }),
    svg("text", { x: f.left - 40, y: base - height / 2, transform: `rotate(-90 ${f.left - 40} ${base - height / 2})`, "text-anchor": "middle" }, "samples"),
    svg("text", { x: (f.left + f.right) / 2, y: base + 20, "text-anchor": "middle" }, label));
}

const stripes = (id, colour) => svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
  svg("rect", { width: 6, height: 6, fill: colour, opacity: 0.22 }), svg("line", { x1: 0, x2: 0, y1: 0, y2: 6, stroke: colour, "stroke-width": 3, opacity: 0.55 }));

function binLines(bin) {
  return [`says ${percent(bin.says, 1)}, is right ${percent(bin.right, 1)}`, `95 % interval ${range(...bin.interval, 1)} %`,
    `${bin.gap >= 0 ? "over" : "under"}-confident by ${Math.abs(100 * bin.gap).toFixed(1)} points`, many(bin.n, "sample")];
}

function reliabilityChart(part, { scheme, bins, zoom, corner }) {
  return chart((width) => {
    const from = zoom ? crowded(part) : 0;
    const f = square(width, "", from);
    const smooth = scheme === "smooth";
    const data = binsOf(part, smooth ? "width" : scheme, smooth ? 30 : bins);
    const id = f.clip, marks = [];
    if (smooth) {
      const s = part.smooth, at = (values) => s.x.map((x, i) => [f.x(x), f.y(values[i])]);
      const around = (a, b) => `${path(at(a))}${path(at(b).reverse()).replace("M", "L")}Z`;
      const over = s.x.map((x, i) => Math.min(x, s.y[i])), under = s.x.map((x, i) => Math.max(x, s.y[i]));
      marks.push(svg("path", { class: "band", d: around(s.band_low, s.band_high) }),
        svg("path", { fill: `url(#${id}o)`, d: around(over, s.x) }), svg("path", { class: "under gap", d: around(under, s.x) }), f.diagonal,
        svg("path", { d: around(s.low, s.high), fill: "var(--ink)", opacity: 0.16 }), svg("path", { class: "curve", d: path(at(s.y)) }));
    } else {
      const pad = (b) => { const x0 = f.x(b.low), x1 = f.x(b.high), w = Math.max(2, x1 - x0 - 1); return { x: (x0 + x1 - w) / 2, width: w }; };
      const box = (b, a, c, extra) => svg("rect", { ...pad(b), y: Math.min(f.y(a), f.y(c)), height: Math.max(0.8, Math.abs(f.y(a) - f.y(c))), ...extra });
      marks.push(data.bins.map((b) => box(b, b.band[0], b.band[1], { class: "band" })),
        data.bins.map((b) => box(b, b.says, b.right, b.gap > 0 ? { fill: `url(#${id}o)` } : { class: "under gap" })), f.diagonal,
        data.bins.map((b) => [svg("line", { class: "whisker", x1: f.x(b.says), x2: f.x(b.says), y1: f.y(b.interval[0]), y2: f.y(b.interval[1]) }),
          svg("circle", { class: "point", cx: f.x(b.says), cy: f.y(b.right), r: 4.2 })]));
    }
    const words = corner(data);
    // The corner that a model of this kind leaves free: curves of the over-confident lie below the diagonal.
    const over = data.bins.reduce((sum, b) => sum + b.n * b.gap, 0) >= 0;
    const wide = 14 + 6.4 * Math.max(...words.map((w) => w.length)), tall = 8 + 18 * words.length;
    const cornerX = over ? f.left + 6 : f.right - wide - 6, cornerY = over ? f.top + 5 : f.bottom - tall - 8;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${f.bottom + 122}` },
      svg("defs", {}, stripes(`${id}o`, "var(--over)"), f.clipPath), f.frame, svg("g", { "clip-path": `url(#${id})` }, marks),
      svg("rect", { x: cornerX, y: cornerY, width: wide, height: tall, rx: 5, fill: "var(--paper)", opacity: 0.82 }),
      words.map((text, i) => svg("text", { class: `halo${i ? " soft" : " strong"}`, x: over ? cornerX + 6 : f.right - 12, "text-anchor": over ? "start" : "end", y: cornerY + 16 + 18 * i }, text)),
      countStrip(f, data.bins, from, 62, "the model says (%)"));
    const s = part.smooth;
    const targets = smooth
      ? s.x.map((x, i) => ({ x: f.x(x), y: f.y(s.y[i]), title: `where it says ${percent(x, 1)}`, lines: [`is right about ${percent(s.y[i], 1)}`, `95 % interval ${range(s.low[i], s.high[i], 1)} %`] }))
      : data.bins.map((b) => ({ x: f.x(b.says), y: f.y(b.right), title: `confidence ${range(b.low, b.high, scheme === "mass" ? 2 : 1)} %`, lines: binLines(b) }));
    return { picture, targets: targets.filter((t) => t.x >= f.left - 1), mode: "x", label: `Reliability diagram of ${part.name}. ${words.join(". ")}. Arrow keys read the values.` };
  });
}

function overlayChart(entries, { scheme, bins, zoom }) {
  return chart((width) => {
    const from = zoom ? Math.min(...entries.map((e) => crowded(e.part))) : 0;
    const f = square(width, "", from);
    const targets = [], marks = [];
    for (const { part, index, name } of entries) {
      const { stroke, dash, mark } = seriesStyle(index);
      const s = part.smooth;
      const rows = scheme === "smooth" ? s.x.map((x, i) => ({ says: x, right: s.y[i], lines: [`is right about ${percent(s.y[i], 1)}`] }))
        : binsOf(part, scheme, bins).bins.map((b) => ({ ...b, lines: binLines(b) }));
      marks.push(svg("path", { d: path(rows.map((b) => [f.x(b.says), f.y(b.right)])), fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": dash, "stroke-linejoin": "round" }));
      if (scheme !== "smooth") marks.push(rows.map((b) => [
        svg("line", { x1: f.x(b.says), x2: f.x(b.says), y1: f.y(b.interval[0]), y2: f.y(b.interval[1]), stroke, opacity: 0.45 }),
        svg("path", { d: mark(f.x(b.says), f.y(b.right), 3.8), fill: stroke, stroke: "var(--paper)", "stroke-width": 0.8 })]));
      for (const b of rows) if (b.says >= from) targets.push({ x: f.x(b.says), y: f.y(b.right), title: name, lines: scheme === "smooth" ? [`says ${percent(b.says, 1)}`, ...b.lines] : b.lines });
    }
    const picture = svg("svg", { viewBox: `0 0 ${width} ${f.bottom + 44}` }, svg("defs", {}, f.clipPath), f.frame, f.diagonal,
      svg("g", { "clip-path": `url(#${f.clip})` }, marks), svg("text", { x: (f.left + f.right) / 2, y: f.bottom + 36, "text-anchor": "middle" }, "the model says (%)"));
    return { picture, targets, label: `Reliability of ${entries.map((e) => e.name).join(", ")} in one diagram. Arrow keys read the values.` };
  });
}

// ------------------------------------------------------------------------------------------------------------- the others

function histogramChart(part) {
  return chart((width) => {
    const { bins } = binsOf(part, "width", 20);
    const left = 52, right = width - 14, half = 84, middle = 10 + half, x = scale(0, 1, left, right);
    const most = Math.max(10, ...bins.map((b) => Math.max(b.k, b.n - b.k)));
    const h = (n) => (n ? 2 + (Math.log10(n) / Math.log10(most)) * (half - 2) : 0);
    const tens = [];
    for (let t = 10; t <= most; t *= 10) tens.push(t);
    const shown = tens.length > 3 ? tens.filter((_, i) => i % 2 === tens.length % 2 ? 0 : 1) : tens;
    const grid = shown.flatMap((t) => [-1, 1].map((s) => [
      svg("line", { class: "gridline", x1: left, x2: right, y1: middle - s * h(t), y2: middle - s * h(t) }),
      svg("text", { class: "soft", x: left - 7, y: middle - s * h(t) + 4, "text-anchor": "end" }, t >= 1e6 ? `${t / 1e6}M` : t >= 1e3 ? `${t / 1e3}k` : t)]));
    const bars = bins.map((b) => {
      const at = { x: x(b.low) + 0.5, width: Math.max(1, x(b.high) - x(b.low) - 1) };
      return [svg("rect", { class: "correct", ...at, y: middle - h(b.k), height: h(b.k) }), svg("rect", { class: "incorrect", ...at, y: middle, height: h(b.n - b.k) })];
    });
    const bottom = middle + half;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${bottom + 44}` }, grid, bars, svg("line", { class: "axis", x1: left, x2: right, y1: middle, y2: middle }),
      svg("text", { class: "halo strong", x: left + 8, y: 24 }, "right"), svg("text", { class: "halo strong", x: left + 8, y: bottom - 8 }, "wrong"),
      xAxis(x, 0, 1, bottom, { scaleBy: 100, label: "the model says (%)" }));
    const targets = bins.map((b) => ({ x: x((b.low + b.high) / 2), y: middle, title: `confidence ${range(b.low, b.high, 0)} %`, lines: [`${grouped(b.k)} right`, `${grouped(b.n - b.k)} wrong`] }));
    return { picture, targets, mode: "x", label: "Histogram of the confidence of right and of wrong predictions, on a logarithmic scale" };
  });
}

// rows: {name, value, low, high, floor, style, title, lines}
function intervalChart(rows, { label, scaleBy = 1, floor = false, digits = 2 }) {
  return chart((width) => {
    const names = Math.min(210, Math.max(90, width * 0.34)), left = names + 10, right = width - 16, pitch = 27, top = 8, bottom = top + pitch * rows.length;
    const low = floor ? 0 : Math.min(...rows.map((r) => r.low)), high = Math.max(...rows.map((r) => Math.max(r.high, floor ? r.floor || 0 : r.high)));
    const pad = (high - low || Math.abs(high) || 1) * 0.05;
    const x = scale(floor ? 0 : low - pad, high + pad, left, right);
    const targets = [], marks = rows.map((row, i) => {
      const y = top + pitch * (i + 0.5), { stroke, mark } = seriesStyle(row.style);
      targets.push({ x: x(row.value), y, title: row.name, lines: row.lines || [`${fixed(scaleBy * row.value, digits)} (${fixed(scaleBy * row.low, digits)} to ${fixed(scaleBy * row.high, digits)})`] });
      return [floor && row.floor && svg("rect", { class: "band", x: x(0), width: Math.max(0, x(row.floor) - x(0)), y: y - pitch / 2 + 1, height: pitch - 2 }),
        svg("text", { x: names, y: y + 4, "text-anchor": "end" }, short(row.name, Math.floor(names / 6.6))),
        svg("line", { x1: x(row.low), x2: x(row.high), y1: y, y2: y, stroke, "stroke-width": 2.2 }),
        svg("path", { d: mark(x(row.value), y, 4.6), fill: stroke, stroke: "var(--paper)" })];
    });
    const picture = svg("svg", { viewBox: `0 0 ${width} ${bottom + 44}` }, xAxis(x, floor ? 0 : low - pad, high + pad, bottom, { label, scaleBy, top, count: Math.max(2, Math.round((right - left) / 70)) }), marks);
    return { picture, targets, label: `${label}: ${rows.map((r) => `${r.name} ${fixed(scaleBy * r.value, digits)}`).join(", ")}` };
  });
}

// series: {name, index, x[], y[], dashed}
function lineChart(series, { xLabel, yLabel, scaleX = 1, scaleY = 1, digits = 2, zero = false, height = 200, xName = xLabel, whole = false }) {
  return chart((width) => {
    const left = 56, right = width - 12, top = 12, bottom = top + height;
    const xs = series.flatMap((s) => s.x), ys = series.flatMap((s) => s.y).filter(Number.isFinite);
    const lowX = Math.min(...xs), highX = Math.max(...xs, lowX + 1e-9);
    let low = zero ? 0 : Math.min(...ys), high = Math.max(...ys);
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    low = zero ? 0 : low - pad; high += pad;
    const x = scale(lowX, highX, left, right), y = scale(low, high, bottom, top);
    const targets = [];
    const marks = series.map((s) => {
      const { stroke, dash, mark } = seriesStyle(s.index);
      const rows = s.x.map((v, i) => [x(v), y(s.y[i])]).filter(([, b]) => Number.isFinite(b));
      s.x.forEach((v, i) => Number.isFinite(s.y[i]) && targets.push({ x: x(v), y: y(s.y[i]), title: s.name, lines: [`${xName} ${+(scaleX * v).toFixed(2)}`, `${yLabel} ${fixed(scaleY * s.y[i], digits)}`] }));
      return [svg("path", { d: path(rows), fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": s.dashed ? "5 4" : dash, "stroke-linejoin": "round" }),
        rows.length <= 30 && rows.map(([a, b]) => svg("path", { d: mark(a, b, 3), fill: stroke }))];
    });
    const picture = svg("svg", { viewBox: `0 0 ${width} ${bottom + 44}` }, yAxis(y, low, high, left, right, { scaleBy: scaleY, count: 4 }),
      svg("text", { class: "strong halo", x: left + 6, y: top + 8 }, yLabel), xAxis(x, lowX, highX, bottom, { label: xLabel, scaleBy: scaleX, whole, count: Math.max(2, Math.round((right - left) / 75)) }), marks);
    return { picture, targets, label: `${yLabel} over ${xLabel} for ${series.map((s) => s.name).join(", ")}` };
  });
}
