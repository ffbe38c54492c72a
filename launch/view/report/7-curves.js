// Curves over the steps: loss with the parity band, speed with warm-up and spread, sensors.
const parityBand = 0.001;  // of the loss of the row that is held against

const curveRows = () => [...shownRuns].sort((a, b) => a - b).map((n) => rows[n]).filter((row) => row.run?.curves);
const columnOf = (row, name) => row.run.curves.columns[name] || [];
const points = (row, name, scale = 1) =>
    columnOf(row, name).map((y, n) => ({x: columnOf(row, 'step')[n], y: y === null ? NaN : y * scale}));

/** A row has one colour in all charts, whichever rows a chart shows beside it. */
const colourPlace = (row) => curveRows().indexOf(row);
const colourOfRow = (row) => runColour(colourPlace(row));
const first = (shown) => Math.min(...shown.map((row) => columnOf(row, 'step')[0] ?? 1));

/**
 * By line, a list of points, the first line that it lies on: no point is further from it than a line is wide on an axis of
 * `height` pixels that shows `range` at least.
 */
function coincident(all, height, range) {
  const values = [...all.flat().map((p) => p.y).filter(known), ...range.filter(known)];
  const near = Math.max(1.8 * (Math.max(...values) - Math.min(...values)) / height, 1e-9 * Math.max(...values.map(Math.abs)));
  const close = (p, q) => p && q && p.x === q.x && (Math.abs(p.y - q.y) <= near || !known(p.y) && !known(q.y));
  const same = (n, m) => all[n].length > 0 && all[n].length === all[m].length && all[n].every((p, k) => close(p, all[m][k]));
  return all.map((_, n) => all.findIndex((__, m) => m <= n && (m === n || same(n, m))));
}

/** Lines that lie on each other are dashes in turn: each of them is seen in its colour. */
function lineDashes(same, shown) {
  const dash = 14;
  return same.map((of, n) => {
    const group = same.filter((other) => other === of).length, place = same.slice(0, n).filter((other) => other === of).length;
    return group === 1 ? {borderDash: runDash(colourPlace(shown[n]))} :
                         {borderDash: [dash, dash * (group - 1)], borderDashOffset: -dash * place};
  });
}

function sameText(shown, same) {
  const groups = shown.map((_, n) => shown.filter((__, m) => same[m] === n)).filter((group) => group.length > 1);
  return groups.map((group) => ' The lines of ' + listed(group.map((row) => nameOf(row))) + ' lie on each other, dash by dash.')
      .join('');
}

/** One line for each row; the numbers behind them as a table. */
function lines(
    height, spoken, caption, shown, name, {scale = 1, title = '', format = si, extra = [], plugins = {}, y = {}, draw} = {}) {
  const drawnPoints = (row) => draw ? draw(row) : points(row, name, scale);
  const same = coincident(shown.map(drawnPoints), height - 40, [y.suggestedMin, y.suggestedMax, y.beginAtZero ? 0 : NaN]),
        dashes = lineDashes(same, shown);
  return chart(
      height, spoken, caption + sameText(shown, same),
      () =>
          ({
            type: 'line',
            data: {
              datasets: [
                ...extra.map((make) => make()), ...shown.map((row, n) => ({
                                                               label: nameOf(row),
                                                               data: drawnPoints(row),
                                                               borderColor: colourOfRow(row),
                                                               backgroundColor: colourOfRow(row),
                                                               ...dashes[n],
                                                               borderWidth: 2,
                                                               pointRadius: drawnPoints(row).length < 3 ? 3 : 0,
                                                               pointHitRadius: 8,
                                                               tension: 0
                                                             }))
              ]
            },
            options: {
              interaction: {mode: 'nearest', axis: 'x', intersect: false},
              parsing: false,
              scales: {
                x: axis('step', {
                  type: 'linear',
                  min: first(shown),
                  ticks: {color: colour('muted'), precision: 0, maxTicksLimit: 10, maxRotation: 0}
                }),
                y: axis(title, Object.assign({ticks: {color: colour('muted'), callback: (v) => format(v), maxTicksLimit: 7}}, y))
              },
              plugins:
                  Object.assign(
                      {
                        tooltip: {
                          callbacks: {
                            title: (i) => 'step ' + i[0].parsed.x,
                            label: (i) => (i.dataset.label || '') + ': ' + format(i.parsed.y)
                          }
                        }
                      },
                      plugins)
            },
          }),
      () => {
        const steps = [...new Set(shown.flatMap((row) => columnOf(row, 'step')))].sort((a, b) => a - b);
        const values = shown.map((row) => new Map(drawnPoints(row).map((p) => [p.x, p.y])));
        return table(
            '', [{name: 'Step'}, ...shown.map((row) => ({name: nameOf(row), number: true}))],
            steps.map(
                (step) => [String(step), ...values.map((v) => v.has(step) && known(v.get(step)) ? format(v.get(step)) : '–')]));
      });
}

const strideText = (shown) => {
  const strides = [...new Set(shown.map((row) => row.run.curves.stride))].filter((s) => s > 1);
  return strides.length ? ' Of long runs every ' + listed(strides.map(String)) + 'th step is shown.' : '';
};
const curveLegend = (shown) => legend(shown.map((row) => [nameOf(row), colourOfRow(row)]));

/**
 * A section of curves: `content(shown)` fills it with those of the chosen rows, anew when the choice changes. Without any it says
 * why: none is chosen, or no row has steps, and `lacking` is what was therefore not done.
 */
function showCurves(id, lacking, content) {
  const box = el('div');
  byId(id).append(box);
  const show = () => {
    const shown = curveRows();
    fill(
        box,
        shown.length                            ? content(shown) :
            rows.some((row) => row.run?.curves) ? empty('No run is chosen: mark some in the column Curves of the table.') :
                                                  empty('No row has steps: ' + lacking + '.'));
  };
  whenShownChanges.push(show);
  show();
}

/**
 * Of the shown rows those that are held against another row: [[row, the first row of its model]]. Losses after as many steps of
 * other numbers of tokens cannot be compared.
 */
function againstFirst(shown) {
  return shown.map((row) => [row, rows.find((first) => first.run?.curves && first.values.model === row.values.model)])
      .filter(([row, first]) => row !== first && row.run.tokens_per_step === first.run.tokens_per_step);
}

function parityContent(shown) {
  const against = againstFirst(shown), others = against.map(([row]) => row), of = new Map(against);
  if (!against.length) return [];
  const relative = (row) => {
    const base = new Map(columnOf(of.get(row), 'step').map((s, n) => [s, columnOf(of.get(row), 'loss')[n]]));
    return columnOf(row, 'step')
        .map((s, n) => ({x: s, y: base.get(s) ? columnOf(row, 'loss')[n] / base.get(s) - 1 : NaN}))
        .filter((p) => known(p.y));
  };
  const steps = others.flatMap((row) => columnOf(row, 'step')), ends = [Math.min(...steps), Math.max(...steps)];
  const edge = (y, fillTo) => () => ({
    data: ends.map((x) => ({x, y})),
    borderColor: colour('muted'),
    borderWidth: 1,
    borderDash: [4, 3],
    pointRadius: 0,
    pointHitRadius: 0,
    fill: fillTo,
    backgroundColor: colour('memory_bound') + '22',
    label: 'parity band'
  });
  const worst = Math.max(...others.flatMap((row) => relative(row).map((p) => Math.abs(p.y)))), band = percent(parityBand, 1);
  return [
    el('h3', {}, 'Parity'),
    el('p', {class: 'muted'},
       worst <= parityBand ?
           'All shown rows stay within ±' + band + ' of the loss of the first row of their model: they train it alike.' :
           'The largest difference to the first row of the model is ' + percent(worst, 2) + ', outside of the band of ±' + band +
               ': these rows do not train alike, or training is unstable.'),
    lines(
        190, 'Relative difference of the loss, at most ' + percent(worst, 3),
        'Relative difference of the loss to the first row of the model (' +
            [...new Set(against.map(([, first]) => nameOf(first)))].join('; ') + '). Tinted: the band of ±' + band + '.',
        others, 'loss', {
          draw: relative,
          format: (v) => percent(v, 3),
          extra: [edge(parityBand, '+1'), edge(-parityBand, false)],
          y: {suggestedMin: -1.3 * parityBand, suggestedMax: 1.3 * parityBand}
        })
  ];
}

/** The units of the losses of rows. */
const lossUnits = (shown) => [...new Set(shown.map((row) => row.run.curves.loss_unit))].join(' or ');

function showLoss() {
  showCurves(
      'loss', 'nothing was trained',
      (shown) =>
          [el('p', {class: 'muted'}, 'Mean loss of each step, in ' + lossUnits(shown) + '.'), curveLegend(shown),
           lines(
               280,
               'Loss over the steps: ' +
                   shown.map((row) => nameOf(row) + ' ends at ' + row.figures.final_loss.toFixed(4)).join('; '),
               strideText(shown), shown, 'loss', {
                 format: (v) => v.toFixed(v < 0.1 ? 5 : 3),
                 y: {ticks: {color: colour('muted'), callback: (v) => si(v), maxTicksLimit: 7}}
               }),
           ...parityContent(shown), ...ownMetricContent(shown)]);
}

/** Numbers that the model or the loss reports of its own. */
function ownMetricContent(shown) {
  const names = [...new Set(shown.flatMap((row) => row.run.curves.own_metrics))];
  return names.flatMap((name) => {
    const having = shown.filter((row) => row.run.curves.own_metrics.includes(name));
    return [
      el('h3', {}, name),
      lines(
          190, name + ' over the steps: ' +
              having.map((row) => nameOf(row) + ' ends at ' + (columnOf(row, name).at(-1) ?? NaN).toPrecision(4)).join('; '),
          strideText(having), having, name, {format: (v) => v.toPrecision(4)})
    ];
  });
}

function speedContent(shown) {
  const until = Math.max(...shown.map((row) => (columnOf(row, 'step')[0] || 1) + row.run.curves.steady.first_step - 1.5));
  return [
    curveLegend(shown),
    lines(
        260, 'Tokens per second over the steps',
        'Tokens per second of each step, first run of each row. Tinted: warm-up, which is left out of every figure.' +
            strideText(shown),
        shown, 'tokens_per_second', {plugins: {warmup: {until}}, y: {beginAtZero: true}}),
    table(
        'Steady state of the first run, and all repeats',
        [
          {name: 'Row'}, {name: 'Median step', number: true}, {name: '10th to 90th percentile', number: true},
          {name: 'Steps', number: true}, {name: 'Start', number: true}, {name: 'Repeats, tokens/s'}
        ],
        shown.map((row) => {
          const s = row.run.curves.steady;
          return [
            nameOf(row), time(s.median_seconds), time(s.low_seconds) + ' to ' + time(s.high_seconds), String(s.steps),
            time(row.run.start?.seconds),
            el('span', {class: 'remark'},
               row.run.repeats.map((r) => si(r.tokens_per_second) + (r.disturbance ? ' (disturbed)' : '')).join(', '))
          ];
        }))
  ];
}
const showSpeed = () => showCurves('speed', 'nothing was run', speedContent);

const sensorTitles = {
  device_gpu_use: ['GPU use', (v) => percent(v)],
  device_memory_controller_use: ['Memory controller use', (v) => percent(v)],
  device_power: ['Power', (v) => si(v, 'W')],
  device_sm_clock: ['Clock of the multiprocessors', (v) => si(v, 'Hz')],
  device_temperature: ['Temperature', (v) => v.toFixed(0) + ' °C'],
  device_memory_used: ['Memory used, by all processes', bytes],
  device_nvlink_sent: ['NVLink, sent since the driver was loaded', bytes],
  device_nvlink_received: ['NVLink, received since the driver was loaded', bytes],
  device_pcie_sent: ['PCIe, sent', (v) => si(v, 'B/s')],
  device_pcie_received: ['PCIe, received', (v) => si(v, 'B/s')],
  device_memory_clock: ['Clock of the memory', (v) => si(v, 'Hz')]
};

function sensorContent(shown) {
  const sensors =
      [...new Set(shown.flatMap((row) => Object.keys(row.run.curves.columns)))].filter((name) => name.startsWith('device_'));
  if (!sensors.length)
    return [empty(
        'Use, power and clocks: no sensor was recorded. The device ' +
        listed([...new Set(shown.map((row) => row.run.environment?.device_kind || '?'))]) +
        ' has none, or its driver does not tell.')];
  return [
    curveLegend(shown),
    ...Object.keys(sensorTitles)
        .filter((name) => sensors.includes(name))
        .flatMap(
            (name) =>
                [el('h3', {}, sensorTitles[name][0]),
                 lines(
                     150, sensorTitles[name][0], '', shown.filter((row) => columnOf(row, name).length), name,
                     {format: sensorTitles[name][1]})])
  ];
}

function processorContent(shown) {
  const used = shown.filter((row) => row.figures.processors);
  if (!used.length) return [];
  return [table(
      'Processors of rank 0’s host during the steps, as shares of the time of those that the run may use',
      [
        {name: 'Row'}, {name: 'This job', number: true}, {name: 'Other processes', number: true},
        {name: 'Other virtual machines', number: true}, {name: 'Idle', number: true}
      ],
      used.map((row) => {
        const p = row.figures.processors;
        return [nameOf(row), percent(p.own), percent(p.others), percent(p.stolen), percent(p.idle)];
      }))];
}

function pathContent(shown) {
  const paths = shown.flatMap((row) => (row.run.topology?.axes || []).map((a) => {
    const sent = (row.run.comm?.axes || []).find((x) => x.axis === a.name), steps = row.run.comm?.steps;
    return [
      nameOf(row), a.name + ' × ' + a.size, a.strategy, a.transport, a.verified_path || '–',
      sent ? bytes(sent.program_bytes_per_step) : '–',
      sent && known(sent.counted_bytes) && steps ? bytes(sent.counted_bytes / steps) : 'not counted'
    ];
  }));
  return [
    el('h3', {}, 'Verified paths'),
    paths.length ? table(
                       'What each axis of the mesh was proven to run over before the first step, and what rank 0 sent',
                       [
                         {name: 'Row'}, {name: 'Axis'}, {name: 'Strategy'}, {name: 'Transport'}, {name: 'Path'},
                         {name: 'Program, per step', number: true}, {name: 'Counted, per step', number: true}
                       ],
                       paths) :
                   empty('No axis of the mesh: these runs have one rank, or were not run.')
  ];
}

function showHardware() {
  showCurves(
      'hardware', 'no sensor was read', (shown) => [...sensorContent(shown), ...processorContent(shown), ...pathContent(shown)]);
}
