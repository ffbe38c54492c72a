// The step of one run: memory by role, the timeline of its queues, and what was predicted.
const roleColours = {
  parameter: 'products',
  gradient: 'memory_bound',
  optimizer_state: 'optimizer',
  activation: 'communication-2',
  input: 'gaps',
  metric: 'gaps',
  workspace: 'copies'
};
const phaseColours = {
  forward: 'products',
  backward: 'attention',
  weight_gradient: 'memory_bound',
  optimizer: 'optimizer'
};

/** A choice of a row, for the sections that show one; `ready` says which rows have something to show. */
function rowChoice(id, ready, show) {
  const able = rows.map((row, n) => [row, n]).filter(([row]) => finished(row) && row.run && ready(row));
  if (!able.length) return null;
  const best = data.models.flatMap((m) => m.ranked).find((n) => able.some(([, k]) => k === n)) ?? able[0][1];
  const select =
      el('select', {id, onchange: (event) => show(rows[Number(event.target.value)])},
         able.map(([row, n]) => el('option', {value: n, selected: n === best}, nameOf(row))));
  return {controls: el('div', {class: 'controls'}, el('label', {}, 'Row', select)), first: rows[best]};
}

const className = (c, classes) => classes.length === 1 ?
    (c.ranks > 1 ? 'rank ' + c.rank + ' and ' + (c.ranks - 1) + ' like it' : 'rank ' + c.rank) :
    'stage ' + classes.indexOf(c) + ': rank ' + c.rank + (c.ranks > 1 ? ' and ' + (c.ranks - 1) + ' like it' : '');

function memoryChart(row, c, classes) {
  const roles = Object.keys(c.memory.roles), order = Object.keys(roleColours).filter((r) => roles.includes(r)),
        x = c.memory.begin;
  const bytesOf = (r, n) => Array.isArray(c.memory.roles[r]) ? c.memory.roles[r][n] : c.memory.roles[r];  // one number: constant
  const most = Math.max(...x.map((_, n) => sum(order.map((r) => bytesOf(r, n))))), measured = row.figures.measured_bytes;
  const flat = (y, name, dash) => ({
    label: name,
    data: [{x: x[0], y}, {x: x[x.length - 1], y}],
    borderColor: colour('ink'),
    borderWidth: 1.5,
    borderDash: dash,
    pointRadius: 0,
    fill: false,
    stack: name
  });
  return [
    el('h3', {}, className(c, classes)), legend(order.map((r) => [r.replace('_', ' '), colour(roleColours[r])])),
    chart(
        230, 'Memory over the step by role, at most ' + bytes(most) + ' of a planned arena of ' + bytes(c.memory.arena_bytes),
        'Dashed: the arena that was planned and taken, ' + bytes(c.memory.arena_bytes) + ' (' +
            bytes(c.memory.arena_bytes - most) + ' of it fragmentation at the fullest).' +
            (known(measured) ? ' Measured: the device of the rank that took the most held ' + bytes(measured) + '.' : ''),
        () => ({
          type: 'line',
          data: {
            datasets: [
              ...order.map((r) => ({
                             label: r.replace('_', ' '),
                             data: x.map((at, n) => ({x: at, y: bytesOf(r, n)})),
                             fill: 'stack',
                             backgroundColor: colour(roleColours[r]),
                             borderColor: colour('page'),
                             borderWidth: 0.5,
                             pointRadius: 0,
                             stepped: true,
                             stack: 'held'
                           })),
              flat(c.memory.arena_bytes, 'planned', [6, 4])
            ]
          },
          options: {
            parsing: false,
            interaction: {mode: 'index', intersect: false},
            scales: {
              x: axis('time into the step', {
                type: 'linear',
                min: 0,
                ticks: {color: colour('muted'), callback: (v) => time(v), maxTicksLimit: innerWidth < 600 ? 5 : 8, maxRotation: 0}
              }),
              y: axis('', {
                stacked: true,
                beginAtZero: true,
                ticks: {
                  color: colour('muted'),
                  callback: (v) => bytes(v),
                  stepSize: 2 ** Math.floor(Math.log2(Math.max(c.memory.arena_bytes, 1024) / 3))
                }
              })
            },
            plugins:
                {tooltip: {callbacks: {title: (i) => time(i[0].parsed.x), label: (i) => i.dataset.label + ': ' + bytes(i.raw.y)}}}
          },
        }),
        () => table(
            '', [{name: 'Time'}, ...order.map((r) => ({name: r.replace('_', ' '), number: true}))],
            x.map((at, n) => [time(at), ...order.map((r) => bytes(bytesOf(r, n)))])))
  ];
}

function showMemory() {
  const section = byId('memory'), box = el('div');
  const show = (row) => fill(
      box,
      el('p', {class: 'muted'},
         'Planned before the run, by role, while each instruction runs. Where it stands in the step: ' + sourceText(row) + '.'),
      timeOf(row).classes.map((c) => memoryChart(row, c, timeOf(row).classes)));
  const choice = rowChoice('memory-row', (row) => row.run.time?.classes?.some((c) => c.memory), show);
  if (!choice) {
    section.append(empty(
        'No archive here holds the memory over the step: archives of version 1, and runs that did not come to their end, have ' +
        'only the peak (column Planned of the table).'));
    return;
  }
  section.append(choice.controls, box);
  show(choice.first);
}

function timelineChart(c, classes) {
  const names = c.segments.map((s) => [data.texts[s[0]], data.texts[s[1]]]),
        queues = [...new Set(names.map((n) => n[0]))].sort((a, b) => (a !== 'compute') - (b !== 'compute') || a.localeCompare(b));
  const kinds = [...new Set(names.map((n) => n[1]))], end = Math.max(...c.segments.map((s) => s[2] + s[3]));
  const others = ['communication', 'communication-2', 'bubble', 'copies', 'clock', 'gaps'],
        strange = kinds.filter((k) => !phaseColours[k]);
  const kindColour = (kind) => colour(phaseColours[kind] || others[strange.indexOf(kind) % others.length]);
  const busy = queues.map((q) => sum(c.segments.filter((s) => data.texts[s[0]] === q).map((s) => s[3])) / 1e6);
  return [
    el('h3', {}, className(c, classes)), legend(kinds.map((kind) => [kind.replaceAll('_', ' '), kindColour(kind)])),
    chart(
        queues.length * 44 + 60,
        'Timeline: ' + queues.map((q, n) => q + ' is busy for ' + time(busy[n])).join('; ') + ' of ' + time(c.step_seconds),
        'Neighbouring instructions of one kind are drawn as one.',
        () => ({
          type: 'bar',
          data: {
            labels: queues,
            datasets: kinds.map((kind) => ({
                                  label: kind.replaceAll('_', ' '),
                                  data: c.segments.filter((s) => data.texts[s[1]] === kind)
                                            .map((s) => ({y: data.texts[s[0]], x: [s[2] / 1e6, (s[2] + s[3]) / 1e6]})),
                                  backgroundColor: kindColour(kind),
                                  grouped: false,
                                  barPercentage: 0.9,
                                  categoryPercentage: 0.9,
                                  minBarLength: 1
                                }))
          },
          options: {
            indexAxis: 'y',
            scales: {
              x: axis('', {
                min: 0,
                max: Math.max(end / 1e6, c.step_seconds),
                ticks: {color: colour('muted'), callback: (v) => time(v), maxTicksLimit: innerWidth < 600 ? 5 : 8, maxRotation: 0}
              }),
              y: axis('', {grid: {display: false}, ticks: {color: colour('ink')}})
            },
            plugins: {tooltip: {callbacks: {label: (i) => i.dataset.label + ' ' + time(i.raw.x[1] - i.raw.x[0])}}}
          },
        }),
        () => table(
            '', [{name: 'Queue'}, {name: 'Busy', number: true}, {name: 'Share of the step', number: true}],
            queues.map((q, n) => [q, time(busy[n]), percent(busy[n] / c.step_seconds)])))
  ];
}

function showTimeline() {
  const section = byId('timeline'), box = el('div');
  const show = (row) => fill(
      box,
      el('p', {class: 'muted'},
         'When each queue of a rank is busy in a step; one picture for each class of ranks that run one program. ' +
             sourceText(row).replace(/^./, (x) => x.toUpperCase()) + '.'),
      timeOf(row).classes.filter((c) => c.segments).map((c) => timelineChart(c, timeOf(row).classes)));
  const choice = rowChoice('timeline-row', (row) => row.run.time?.classes?.some((c) => c.segments), show);
  if (!choice) {
    section.append(empty(
        'No archive here holds a timeline: those of version 1 and of runs that did not come to their end have none. ' +
        'consist train --trace FILE writes one for Perfetto.'));
    return;
  }
  const able = rows.filter((row) => row.run?.time?.classes?.length),
        with_ = able.filter((row) => row.run.time.classes.some((c) => c.segments));
  section.append(
      choice.controls,
      with_.length < able.length ?
          el('p', {class: 'muted small'},
             'Of ' + able.length + ' rows ' + with_.length +
                 ' have their timeline here, so that the file stays small; consist report with one archive shows that one’s.') :
          '',
      box);
  show(choice.first);
}

/// How far simulated steps are off, by the kinds of steps that were measured; of those for which that is not known, why.
function errorsOf(steps) {
  const bars = steps.map((step) => step?.step_error).filter(known),
        problems = [...new Set(steps.flatMap((step) => (step?.error_problem || '').split(', ')).filter(Boolean))];
  const text = bars.length ? '95% of such steps are within ±' + percent(Math.max(...bars)) + ' of what is predicted. ' : '';
  return text +
      (problems.length || !bars.length ? 'The error ' + (bars.length ? 'of others ' : '') + 'is not known' +
               (problems.length ? ': ' + problems.join(', ') + '.' : '.') :
                                         '');
}

function showPredicted() {
  const section = byId('predicted');
  if (isPredicted) {
    section.append(empty('All of this is predicted; nothing was run. ' + errorsOf(rows.map((row) => row.figures))));
    return;
  }
  const able = rows.filter(
      (row) => row.run?.time && known(row.run.time.simulation?.step_seconds) || known(row.figures?.predicted_seconds));
  if (!able.length) {
    section.append(empty('No archive here holds a simulated step: archives of version 1 have none.'));
    return;
  }
  const machines = [...new Set(able.map((row) => row.run?.time?.simulation?.machine).filter(Boolean))],
        simulations = able.map((row) => row.run?.time?.simulation);
  section.append(
      el('p', {},
         'Each run simulates its own step for ' +
             (machines.length ? 'the machine that it was planned for: ' + listed(machines) : 'its machine') + '. ' +
             errorsOf(simulations)));
  section.append(table(
      'Of the parts: measured, and simulated in brackets',
      [
        {name: 'Row'}, {name: 'Measured step', number: true}, {name: 'Simulated', number: true},
        {name: 'Difference', number: true},
        ...['products', 'attention', 'memory_bound', 'optimizer'].map((k) => ({name: partNames[k], number: true}))
      ],
      able.map((row) => {
        const t = row.run.time,
              predicted = known(row.figures.predicted_seconds) ? row.figures.predicted_seconds : t.simulation.step_seconds;
        return [
          nameOf(row), time(row.figures.step_seconds), time(predicted), signed(percent(predicted / row.figures.step_seconds - 1)),
          ...['products', 'attention', 'memory_bound', 'optimizer'].map(
              (k) => t.source === 'measured' && known(t.simulated_parts?.[k]) ?
                  time(t.parts[k]) + ' (' + time(t.simulated_parts[k]) + ')' :
                  '–')
        ];
      })));
  for (const row of able) showResidual(section, row);
}

/// The difference of the measured and the predicted step of a row as a sum of terms, with their causes (docs/residual.md).
function showResidual(section, row) {
  const residual = row.run.residual, terms = residual?.terms?.filter((term) => term.cause);
  if (!terms?.length) return;
  const name = (cause) => residual.causes.find((one) => one.cause === cause).name;
  section.append(table(
      nameOf(row) + ': ' + time(residual.predicted_seconds) + ' predicted for ' + residual.machine + ', ' +
          time(residual.measured_seconds) + ' measured' + (residual.within_error ? ', within the error of predictions' : '') +
          '; the largest terms',
      [{name: 'Part'}, {name: 'Difference', number: true}, {name: 'Likeliest cause'}, {name: 'What was seen'}],
      terms.slice(0, 6).map((term) => [partName(term.part), signed(time(term.seconds)), name(term.cause), term.text])));
}
