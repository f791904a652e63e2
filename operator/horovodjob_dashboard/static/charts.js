// Draws the curves of a page with uPlot, from the tables of their values: hover, zoom, log scale, smoothing.
"use strict";

(() => {
  const root = document.currentScript.src.replace(/charts\.js$/, "");
  const aspect = 200 / 480, smallest = 120;
  const drawn = new Map();  // a figure: its plot, what it was made for, and the values as the table has them
  const settings = {log: false, smoothing: 0, ...JSON.parse(localStorage.getItem("horovodjob-charts") ?? "{}")};
  let loading = null;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // uPlot comes when a page has its first curve.
  function load() {
    loading ??= new Promise((resolve, reject) => {
      const style = Object.assign(document.createElement("link"), {rel: "stylesheet", href: `${root}uPlot-1.6.32.min.css`});
      const script = Object.assign(document.createElement("script"), {src: `${root}uPlot-1.6.32.min.js`});
      script.onload = resolve;
      script.onerror = reject;
      document.head.append(style, script);
    });
    return loading;
  }

  // null: NaN or infinite, a gap; undefined: the program has reported nothing, so the line goes on.
  function read(figure) {
    const table = figure.querySelector("table.values");
    const heads = [...table.tHead.rows[0].cells].slice(1);
    const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    const number = (text) => (text === "" ? undefined : text === "NaN" ? null : Number(text));
    return {
      title: figure.querySelector("figcaption").firstChild.textContent.trim(),
      names: heads.map((head) => head.textContent),
      colors: heads.map((head) => `--c${head.dataset.color}`),
      epochs: rows.map((row) => Number(row[0])),
      values: heads.map((_, column) => rows.map((row) => number(row[column + 1]))),
    };
  }

  // The exponential moving average, without its bias to zero at the beginning.
  function smoothed(values, weight) {
    let mean = 0, count = 0;
    return values.map((value) => {
      if (value == null) return value;
      mean = weight * mean + (1 - weight) * value;
      count += 1;
      return mean / (1 - weight ** count);
    });
  }

  // As short as it can be while its neighbours at this distance differ.
  function label(value, distance) {
    if (value == null) return "";
    if (value === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(value)));
    const digits = Math.min(Math.max(size - Math.floor(Math.log10(distance || Math.abs(value))) + 1, 1), 17);
    if (size >= 6 || size < -4) return value.toExponential(digits - 1).replace("e+", "e");
    if (size >= 4) return `${Number((value / 1000).toPrecision(digits))}k`;
    return String(Number(value.toPrecision(digits)));
  }

  const shown = (value) => (value == null ? "–" : String(Number(value.toPrecision(5))));

  function axis(values, more) {
    return {
      stroke: () => color("--weak"), grid: {stroke: () => color("--line"), width: 1}, ticks: {show: false},
      font: "11px system-ui, sans-serif", values, ...more,
    };
  }

  function options(found, width, isLog) {
    const series = found.names.flatMap((name, index) => {
      const stroke = () => color(found.colors[index]);
      const value = (_, __, column, at) => (at == null ? "–" : found.values[index][at] === null ? "NaN" : shown(plotData(found, isLog)[column][at]));
      const points = {show: found.epochs.length < 60, size: 5, fill: stroke};
      const line = {label: name, stroke, width: 2, points, value};
      if (!settings.smoothing) return [line];
      return [
        {...line, alpha: 0.35, width: 1, points: {show: false}},
        {...line, label: `${name}, smoothed`, points: {show: false}},
      ];
    });
    const halfEpoch = 4 * String(found.epochs.at(-1)).length;  // the first one is below the end of this axis
    const widest = (_, texts) => Math.max(halfEpoch, 14 + 7 * Math.max(0, ...(texts ?? []).map((text) => text.length)));
    return {
      width, height: Math.max(width * aspect, smallest),
      scales: {x: {time: false}, y: isLog ? {distr: 3} : {}},
      axes: [
        axis((_, marks) => marks.map((mark) => (mark !== null && Number.isInteger(mark) ? String(mark) : "")), {size: 24, incrs: [1, 2, 5].flatMap((step) => [step, 10 * step, 100 * step, 1e3 * step, 1e4 * step, 1e5 * step, 1e6 * step]).sort((a, b) => a - b)}),
        axis((_, marks, __, ___, distance) => marks.map((mark) => label(mark, isLog ? 0 : distance)), {size: widest, gap: 4}),
      ],
      series: [{label: "Epoch", value: (_, epoch) => (epoch == null ? "–" : String(epoch))}, ...series],
      cursor: {sync: {key: "epochs"}, drag: {x: true, y: false}},
      hooks: {draw: [(plot) => markGaps(plot, found)]},
    };
  }

  function plotData(found, isLog) {
    const lines = found.values.flatMap((values) => (settings.smoothing ? [values, smoothed(values, settings.smoothing)] : [values]));
    return [found.epochs, ...(isLog ? lines.map((values) => values.map((value) => (value <= 0 && value !== null ? undefined : value))) : lines)];
  }

  // A cross at the lower end of the picture for each value that is NaN or infinite.
  function markGaps(plot, found) {
    const {ctx, bbox} = plot, size = 4 * devicePixelRatio, y = bbox.top + bbox.height - size;
    ctx.save();
    ctx.lineWidth = 2 * devicePixelRatio;
    found.values.forEach((values, index) => values.forEach((value, at) => {
      const x = plot.valToPos(found.epochs[at], "x", true);
      if (value !== null || x < bbox.left || x > bbox.left + bbox.width) return;
      ctx.strokeStyle = color(found.colors[index]);
      ctx.beginPath();
      ctx.moveTo(x - size, y - size); ctx.lineTo(x + size, y + size);
      ctx.moveTo(x + size, y - size); ctx.lineTo(x - size, y + size);
      ctx.stroke();
    }));
    ctx.restore();
  }

  function draw(figure) {
    const found = read(figure), place = figure.querySelector(".plot"), known = drawn.get(figure);
    const isLog = settings.log && found.values.some((values) => values.some((value) => value > 0));
    const made = JSON.stringify([found.title, found.names, found.colors, isLog, settings.smoothing]);
    const values = JSON.stringify([found.epochs, found.values.map((each) => each.map((value) => value ?? String(value)))]);
    if (known?.made === made && known.values === values) return;
    const zoom = known && isZoomed(known) ? {min: known.plot.scales.x.min, max: known.plot.scales.x.max} : null;
    known?.plot.destroy();
    // The table is read by `found` alone, so a plot of new values is a new plot, with the zoom of the old one.
    const plot = new uPlot(options(found, place.parentElement.clientWidth, isLog), plotData(found, isLog), place);
    if (zoom && known.title === found.title) plot.setScale("x", zoom);
    drawn.set(figure, {plot, made, values, title: found.title, ends: [found.epochs[0], found.epochs.at(-1)]});
    widths.observe(place.parentElement);
  }

  function isZoomed({plot, ends}) {
    const {min, max} = plot.scales.x;
    return min != null && ends[1] > ends[0] && (min > ends[0] || max < ends[1]);
  }

  const widths = new ResizeObserver((entries) => {
    for (const {target} of entries) {
      const plot = drawn.get(target.closest("figure"))?.plot, width = target.clientWidth;
      if (plot && width && plot.width !== width) plot.setSize({width, height: Math.max(width * aspect, smallest)});
    }
  });

  async function drawAll() {
    const figures = [...document.querySelectorAll("figure:has(table.values)")];
    for (const [figure, {plot}] of drawn) {
      if (!figures.includes(figure)) { plot.destroy(); drawn.delete(figure); }
    }
    for (const tools of document.querySelectorAll(".chart-tools[hidden]")) {
      tools.elements.log.checked = settings.log;
      tools.elements.smoothing.value = settings.smoothing;
      tools.hidden = !figures.length;
    }
    if (!figures.length) return;
    await load();
    for (const figure of document.querySelectorAll("figure:has(table.values)")) draw(figure);
  }

  function apply(event) {
    const form = event.target.closest(".chart-tools");
    if (!form) return;
    settings.log = form.elements.log.checked;
    settings.smoothing = Number(form.elements.smoothing.value);
    localStorage.setItem("horovodjob-charts", JSON.stringify(settings));
    drawAll();
  }

  document.addEventListener("input", apply);
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".chart-tools button")) return;
    for (const known of drawn.values()) if (isZoomed(known)) known.plot.setScale("x", {min: known.ends[0], max: known.ends[1]});
  });
  document.addEventListener("submit", (event) => { if (event.target.closest(".chart-tools")) event.preventDefault(); });
  document.addEventListener("updated", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const {plot} of drawn.values()) plot.redraw(); });
  drawAll();
})();
