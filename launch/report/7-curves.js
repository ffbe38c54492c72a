// Curves over the steps: loss with the parity band, speed with warm-up and spread, sensors.
const parityBand = 0.001;  // of the loss of the row that is held against

const curveRows = () => [...shownRuns].sort((a, b) => a - b).map((n) => rows[n]).filter((row) => row.run?.curves);
const columnOf = (row, name) => row.run.curves.columns[name] || [];
const points = (row, name, scale = 1) =>
    columnOf(row, name).map((y, n) => ({x: columnOf(row, 'step')[n], y: y === null ? NaN : y * scale}));

const first = (shown) => Math.min(...shown.map((row) => columnOf(row, 'step')[0] ?? 1));

/** By row the first row whose line is the same within a ten-thousandth of the values: one covers the other. */
function coincident(shown, pointsOf) {
  const all = shown.map((row) => pointsOf(row).filter((p) => known(p.y)));
  const close = (p, q) => p && q && p.x === q.x && Math.abs(p.y - q.y) <= 1e-4 * Math.max(Math.abs(p.y), Math.abs(q.y));
  const same = (n, m) => all[n].length > 0 && all[n].length === all[m].length && all[n].every((p, k) => close(p, all[m][k]));
  return all.map((_, n) => all.findIndex((__, m) => m <= n && (m === n || same(n, m))));
}

/** Lines that cover each other are drawn one inside the other: the first, on top, is the thinnest. */
function lineWidths(same) {
  return same.map((first, n) => 1.8 + 2.4 * same.slice(0, n).filter((other) => other === first).length);
}

function sameText(shown, same) {
  const groups = shown.map((_, n) => shown.filter((__, m) => same[m] === n)).filter((group) => group.length > 1);
  return groups.map((group) => ' The lines of ' + listed(group.map((row) => nameOf(row))) + ' are the same: one lies inside the other.')
      .join('');
}

/** One line for each row; the numbers behind them as a table. */
function lines(
    height, spoken, caption, shown, name, {scale = 1, title = '', format = si, extra = [], plugins = {}, y = {}, draw} = {}) {
  const drawnPoints = (row) => draw ? draw(row) : points(row, name, scale);
  const same = coincident(shown, drawnPoints), widths = lineWidths(same);
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
                                                               borderColor: runColour(n),
                                                               backgroundColor: runColour(n),
                                                               borderDash: runDash(n),
                                                               borderWidth: widths[n],
                                                               pointRadius: columnOf(row, 'step').length < 3 ? 3 : 0,
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
const curveLegend = (shown) => legend(shown.map((row, n) => [nameOf(row), runColour(n)]));
const noCurves = () => empty('No run is chosen: mark some in the column Curves of the table.');

function showLoss() {
  const section = byId('loss'), box = el('div');
  section.append(box);
  const show = () => {
    const shown = curveRows();
    if (!shown.length) {
      fill(box, rows.some((row) => row.run?.curves) ? noCurves() : empty('No row has steps: nothing was trained.'));
      return;
    }
    const content = [
      el('p', {class: 'muted'}, 'Mean cross-entropy of each step, in nats per token.'), curveLegend(shown),
      lines(
          280,
          'Loss over the steps: ' + shown.map((row) => nameOf(row) + ' ends at ' + row.figures.final_loss.toFixed(4)).join('; '),
          strideText(shown), shown, 'loss', {
            format: (v) => v.toFixed(v < 0.1 ? 5 : 3),
            y: {ticks: {color: colour('muted'), callback: (v) => si(v), maxTicksLimit: 7}}
          })
    ];
    const against = shown.map((row) => [row, data.models.find((m) => m.model === row.values.model)])
                        .map(([row]) => [row, rows.find((r) => r.run?.curves && r.values.model === row.values.model)])
                        .filter(([row, first]) => first && row !== first);
    if (against.length) {
      const others = against.map(([row]) => row), of = new Map(against);
      const relative = (row) => {
        const base = new Map(columnOf(of.get(row), 'step').map((s, n) => [s, columnOf(of.get(row), 'loss')[n]]));
        return columnOf(row, 'step')
            .map((s, n) => ({x: s, y: base.get(s) ? columnOf(row, 'loss')[n] / base.get(s) - 1 : NaN}))
            .filter((p) => known(p.y));
      };
      const ends = () => {
        const steps = others.flatMap((row) => columnOf(row, 'step'));
        return [Math.min(...steps), Math.max(...steps)];
      };
      const edge = (y, fillTo) => () => ({
        data: ends().map((x) => ({x, y})),
        borderColor: colour('muted'),
        borderWidth: 1,
        borderDash: [4, 3],
        pointRadius: 0,
        pointHitRadius: 0,
        fill: fillTo,
        backgroundColor: colour('memory_bound') + '22',
        label: 'parity band'
      });
      const worst = Math.max(...others.flatMap((row) => relative(row).map((p) => Math.abs(p.y))));
      content.push(
          el('h3', {}, 'Parity'),
          el('p', {class: 'muted'},
             worst <= parityBand ?
                 'All shown rows stay within ±' + percent(parityBand, 1) +
                     ' of the loss of the first row of their model: they train it alike.' :
                 'The largest difference to the first row of the model is ' + percent(worst, 2) + ', outside of the band of ±' +
                     percent(parityBand, 1) + ': these rows do not train alike, or training is unstable.'),
          lines(
              190, 'Relative difference of the loss, at most ' + percent(worst, 3),
              'Relative difference of the loss to the first row of the model (' +
                  [...new Set(against.map(([, first]) => nameOf(first)))].join('; ') + '). Tinted: the band of ±' +
                  percent(parityBand, 1) + '.',
              others, 'loss', {
                draw: relative,
                format: (v) => percent(v, 3),
                extra: [edge(parityBand, '+1'), edge(-parityBand, false)],
                y: {suggestedMin: -1.3 * parityBand, suggestedMax: 1.3 * parityBand}
              }));
    }
    fill(box, content);
  };
  whenShownChanges.push(show);
  show();
}

function showSpeed() {
  const section = byId('speed'), box = el('div');
  section.append(box);
  const show = () => {
    const shown = curveRows();
    if (!shown.length) {
      fill(box, rows.some((row) => row.run?.curves) ? noCurves() : empty('No row has steps: nothing was run.'));
      return;
    }
    const until = Math.max(...shown.map((row) => (columnOf(row, 'step')[0] || 1) + row.run.curves.steady.first_step - 1.5));
    fill(
        box, curveLegend(shown),
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
                row.run.repeats.map((r) => si(r.tokens_per_second) + (r.disturbance ? ' (disturbed)' : '')).join(', ')
              ];
            })));
  };
  whenShownChanges.push(show);
  show();
}

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

function showHardware() {
  const section = byId('hardware'), box = el('div');
  section.append(box);
  const show = () => {
    const shown = curveRows(), content = [];
    const sensors =
        [...new Set(shown.flatMap((row) => Object.keys(row.run.curves.columns)))].filter((name) => name.startsWith('device_'));
    if (!shown.length)
      content.push(rows.some((row) => row.run?.curves) ? noCurves() : empty('No row has steps: no sensor was read.'));
    else if (!sensors.length)
      content.push(empty(
          'Use, power and clocks: no sensor was recorded. The device ' +
          listed([...new Set(shown.map((row) => row.run.environment?.device_kind || '?'))]) +
          ' has none, or its driver does not tell.'));
    else {
      content.push(curveLegend(shown));
      for (const name of Object.keys(sensorTitles).filter((n) => sensors.includes(n)))
        content.push(
            el('h3', {}, sensorTitles[name][0]),
            lines(
                150, sensorTitles[name][0], '', shown.filter((row) => columnOf(row, name).length), name,
                {format: sensorTitles[name][1]}));
    }
    const used = shown.filter((row) => row.figures.processors);
    if (used.length)
      content.push(table(
          'Processors of rank 0’s host during the steps, as shares of the time of those that the run may use',
          [
            {name: 'Row'}, {name: 'This job', number: true}, {name: 'Other processes', number: true},
            {name: 'Other virtual machines', number: true}, {name: 'Idle', number: true}
          ],
          used.map((row) => {
            const p = row.figures.processors;
            return [nameOf(row), percent(p.own), percent(p.others), percent(p.stolen), percent(p.idle)];
          })));
    const paths = shown.flatMap((row) => (row.run.topology?.axes || []).map((a) => {
      const sent = (row.run.comm?.axes || []).find((x) => x.axis === a.name), steps = row.run.comm?.steps;
      return [
        nameOf(row), a.name + ' × ' + a.size, a.strategy, a.transport, a.verified_path || '–',
        sent ? bytes(sent.program_bytes_per_step) : '–',
        sent && known(sent.counted_bytes) && steps ? bytes(sent.counted_bytes / steps) : 'not counted'
      ];
    }));
    content.push(
        el('h3', {}, 'Verified paths'),
        paths.length ? table(
                           'What each axis of the mesh was proven to run over before the first step, and what rank 0 sent',
                           [
                             {name: 'Row'}, {name: 'Axis'}, {name: 'Strategy'}, {name: 'Transport'}, {name: 'Path'},
                             {name: 'Program, per step', number: true}, {name: 'Counted, per step', number: true}
                           ],
                           paths) :
                       empty('No axis of the mesh: these runs have one rank, or were not run.'));
    fill(box, content);
  };
  whenShownChanges.push(show);
  show();
}
