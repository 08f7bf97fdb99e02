// From cells to bins: the browser's half of calgrad.report.cells. A bin is the sum of the cells between two cuts.

const Z = 1.959964;

function binsOf(part, scheme, count) {
  const cells = scheme === "width" ? { ...DOC.width, ...part.width } : part.mass;
  const cuts = cells.cuts[count];
  const last = cells.edges.length - 1;
  const bins = [];
  for (let i = 0; i < count; i++) {
    const from = i === 0 ? 0 : cuts[i] + 1;
    const to = i === count - 1 ? last : cuts[i + 1];
    const bin = { low: cells.edges[cuts[i]], high: cells.edges[cuts[i + 1]], n: 0, c: 0, k: 0, v: 0 };
    for (let j = from; j <= to; j++) { bin.n += cells.n[j]; bin.c += cells.c[j]; bin.k += cells.k[j]; bin.v += cells.v[j]; }
    if (bin.n) bins.push(judged(bin));
  }
  const total = bins.reduce((sum, bin) => sum + bin.n, 0);
  for (const bin of bins) bin.share = (bin.n / total) * Math.abs(bin.gap);
  return { bins, total, ece: bins.reduce((sum, bin) => sum + bin.share, 0) };
}

// Means, Wilson's interval of the accuracy, and where the accuracy of a calibrated model would lie 95 times in 100.
function judged(bin) {
  const says = bin.c / bin.n;
  const right = bin.k / bin.n;
  const [low, high] = wilson(bin.k, bin.n);
  const noise = (Z * Math.sqrt(Math.max(bin.v, 0))) / bin.n;
  return { ...bin, says, right, gap: says - right, interval: [low, high], band: [Math.max(0, says - noise), Math.min(1, says + noise)] };
}

function wilson(k, n) {
  const p = k / n, z2 = Z * Z, centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const half = (Z / (1 + z2 / n)) * Math.sqrt((p * (1 - p)) / n + z2 / (4 * n * n));
  return [Math.max(0, centre - half), Math.min(1, centre + half)];
}

// Where to look closely: the highest start above which four fifths of the samples lie.
function crowded(part) {
  const { edges } = DOC.width;
  const total = part.width.n.reduce((a, b) => a + b, 0);
  let above = 0, start = 0;
  for (let j = edges.length - 1; j > 0; j--) {
    above += part.width.n[j];
    if (above >= 0.8 * total) { start = edges[j - 1]; break; }
  }
  return start >= 0.95 ? 0.9 : Math.floor(start * 10) / 10;
}
