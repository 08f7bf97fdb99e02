// The other pictures: histogram, intervals, lines.

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
function lineChart(series, { xLabel, yLabel, scaleX = 1, scaleY = 1, digits = 2, zero = false, height = 200, xName = xLabel, whole = false, start }) {
  return chart((width) => {
    const left = 56, right = width - 12, top = 12, bottom = top + height;
    const xs = series.flatMap((s) => s.x), ys = series.flatMap((s) => s.y).filter(Number.isFinite);
    const lowX = start ?? Math.min(...xs), highX = Math.max(...xs, lowX + 1e-9);
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
