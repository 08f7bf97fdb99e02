// The reliability diagram, of one model and of several.

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
