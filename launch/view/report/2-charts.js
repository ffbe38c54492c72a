// Charts: Chart.js with this page's colours, drawn anew when these change, and with their numbers as a table beside them.
const drawn = [];
let printing = false;

/** A colour of report.css. Print is light whatever the screen is. */
function colour(name) {
  const light = {ink: '#1c2024', muted: '#5b626a', line: '#d9dad6', page: '#ffffff'};
  if (printing && light[name]) return light[name];
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

const runColours = ['products', 'communication', 'memory_bound', 'optimizer', 'communication-2', 'attention', 'copies', 'gaps'];
const runColour = (n) => colour(runColours[n % runColours.length]);
const runDash = (n) => n < runColours.length ? [] : [6, 3];

Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;

/** What all axes have in common. */
function axis(title, more = {}) {
  const ticks = {color: colour('muted'), maxRotation: 0, autoSkipPadding: 14};
  return {
    title: {display: !!title, text: title, color: colour('muted')},
    grid: {color: colour('line'), drawBorder: false},
    ...more,
    ticks: {...ticks, ...more.ticks}
  };
}

/** Writes `label(point)` at the end of each bar of the first dataset, or behind `end(point)` if that is further. */
const barLabels = {
  id: 'barLabels',
  afterDatasetsDraw(chart, _, options) {
    if (!options.label) return;
    const {ctx, chartArea} = chart;
    ctx.save();
    ctx.fillStyle = colour('ink');
    ctx.font = Chart.defaults.font.size + 'px ' + Chart.defaults.font.family;
    ctx.textBaseline = 'middle';
    chart.getDatasetMeta(0).data.forEach((bar, n) => {
      const text = options.label(n), width = ctx.measureText(text).width,
            end = options.end ? chart.scales.x.getPixelForValue(options.end(n)) : 0;
      const right = Math.max(bar.x, bar.base, end || 0) + 6;
      const fits = right + width <= chartArea.right + (options.room || 0);
      ctx.fillText(text, fits ? right : Math.max(Math.min(bar.x, bar.base) - 6 - width, chartArea.left + 2), bar.y);
    });
    ctx.restore();
  },
};
/** Tints the steps that are warm-up. */
const warmup = {
  id: 'warmup',
  beforeDatasetsDraw(chart, _, options) {
    if (!options.until) return;
    const {ctx, chartArea: area, scales} = chart, x = scales.x.getPixelForValue(options.until);
    ctx.save();
    ctx.globalAlpha = 0.13;
    ctx.fillStyle = colour('gaps');
    ctx.fillRect(area.left, area.top, Math.max(x - area.left, 0), area.bottom - area.top);
    ctx.restore();
  },
};
Chart.register(barLabels, warmup);

/** Charts are drawn when they come near to what is seen: pages of many rows open at once. */
const nearby = new IntersectionObserver((entries) => {
  for (const {isIntersecting, target} of entries) {
    const entry = drawn.find((e) => e.canvas === target);
    if (isIntersecting && entry && !entry.chart) entry.draw();
  }
}, {rootMargin: '800px'});

/**
 * A figure. `make()` gives Chart.js's configuration in the present colours; `spoken` is what the chart shows, in words; `numbers`
 * makes the table of what is drawn, when somebody opens it.
 */
function chart(height, spoken, caption, make, numbers) {
  const canvas = el('canvas', {role: 'img', 'aria-label': spoken});
  const figure =
      el('figure', {}, el('div', {class: 'chart', style: 'height:' + height + 'px'}, canvas),
         caption ? el('figcaption', {}, caption) : '');
  if (numbers) {
    const details = el('details', {}, el('summary', {}, 'The numbers'));
    details.addEventListener('toggle', () => {
      if (details.open && details.children.length === 1) details.append(numbers());
    });
    figure.append(details);
  }
  const entry = {canvas, make, chart: null};
  entry.draw = () => {
    if (entry.chart) entry.chart.destroy();
    const made = make();
    made.options =
        Object.assign({responsive: true, maintainAspectRatio: false, devicePixelRatio: printing ? 3 : undefined}, made.options);
    made.options.plugins = Object.assign({legend: {display: false}}, made.options.plugins);
    entry.chart = new Chart(canvas, made);
  };
  drawn.push(entry);
  nearby.observe(canvas);
  return figure;
}

/** Draws again what has been drawn, or every chart of the page. */
function redraw(every) {
  for (const entry of drawn.filter((e) => e.canvas.isConnected && (e.chart || every === true))) entry.draw();
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
addEventListener('beforeprint', () => {
  printing = true;
  redraw(true);
});
addEventListener('afterprint', () => {
  printing = false;
  redraw();
});

/** Replaces what an element holds, and lets go of the charts that were in it. */
function fill(parent, ...content) {
  parent.replaceChildren(...content.flat(Infinity).filter((part) => part !== '' && part !== undefined && part !== null));
  for (let n = drawn.length - 1; n >= 0; --n) {
    if (drawn[n].canvas.isConnected) continue;
    if (drawn[n].chart) drawn[n].chart.destroy();
    drawn.splice(n, 1);
  }
}

/** A legend as text beside swatches, which also reads aloud. */
function legend(entries) {
  return el(
      'ul', {class: 'legend'},
      entries.map(
          ([name, of]) => el('li', {}, el('span', {class: 'swatch', style: 'background:' + of, 'aria-hidden': 'true'}), name)));
}
