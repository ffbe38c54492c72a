// The table: sortable, with filters, and the choice of what the curves show.
const shownRuns = new Set();
const whenShownChanges = [];

const columns = [
  {
    name: 'Tokens/s',
    value: (r) => r.speed?.mean,
    text: (r) => si(r.speed.mean),
    help: 'of all ranks: geometric mean of the repeats'
  },
  {
    name: '±95%',
    value: (r) => known(r.speed?.low) ? Math.max(r.speed.high / r.speed.mean - 1, 1 - r.speed.low / r.speed.mean) : null,
    text: (r) => percent(columns[1].value(r), 1),
    help: 'confidence interval over the repeats'
  },
  {
    name: 'Step',
    value: (r) => r.figures?.step_seconds,
    text: (r) => time(r.figures.step_seconds),
    help: 'median of the steady steps'
  },
  {
    name: 'Predicted',
    value: (r) => r.figures?.predicted_seconds,
    text: (r) => time(r.figures.predicted_seconds),
    help: 'a step, simulated for the machine'
  },
  {
    name: 'MFU',
    value: (r) => r.figures?.mfu ?? own(r).run?.result?.mfu,
    text: (r) => percent(r.figures.mfu ?? own(r).run?.result?.mfu, 1),
    help: 'model FLOP/s over the dense peak'
  },
  {
    name: 'Bound',
    value: (r) => r.figures?.share_of_bound,
    text: (r) => percent(r.figures.share_of_bound),
    help: 'share of the measured rate of the largest linear'
  },
  {
    name: 'Planned',
    value: (r) => r.figures?.planned_bytes,
    text: (r) => bytes(r.figures.planned_bytes),
    help: 'memory of the rank that needs the most'
  },
  {
    name: 'Measured',
    value: (r) => r.figures?.measured_bytes,
    text: (r) => bytes(r.figures.measured_bytes),
    help: 'the most that a device held'
  },
  {
    name: 'Sent/step',
    value: (r) => r.figures?.bytes_sent_per_step,
    text: (r) => (r.figures.sent_is_counted ? '' : '~') + bytes(r.figures.bytes_sent_per_step),
    help: 'by rank 0; ~: by the program, not counted'
  },
  {name: 'Loss', value: (r) => r.figures?.final_loss, text: (r) => r.figures.final_loss.toFixed(4), help: 'of the last step'},
  {
    name: 'Eval loss',
    value: (r) => own(r).run?.curves?.evaluations?.at(-1)?.[1],
    text: (r) => own(r).run.curves.evaluations.at(-1)[1].toFixed(4),
    help: 'of the last evaluation'
  },
  {
    name: 'Parity',
    value: (r) => r.figures?.parity,
    text: (r) => r.figures.parity === 0 ? '0' : signed(r.figures.parity.toExponential(1).replaceAll('-', '−')),
    help: 'final loss against the first row of the model'
  },
];

function showTable() {
  const section = byId('table');
  if (rows.length === 1 && !finished(rows[0])) {
    section.append(empty(rows[0].status + ': ' + rows[0].reason));
    return;
  }
  const present = columns.filter((c) => rows.some((row) => known(c.value(row))));
  const texts = varying.length ? varying : ['model'];
  const fastest = Object.fromEntries(data.models.map((m) => [m.model, bySpeed(m)[0]?.speed.mean ?? NaN]));
  const best = new Set(data.models.filter((m) => m.leaders === 1 && m.ranked.length > 1).map((m) => m.ranked[0]));
  // At first of each model the fastest, the slowest and, while there is room, the others.
  for (const place of [0, -1, 1, 2])
    for (const ranked of data.models.map(bySpeed))
      if (shownRuns.size < 4 && ranked.length) shownRuns.add(rows.indexOf(ranked.at(place) ?? ranked[0]));
  const filters = {};
  let sorted = null, ascending = true;
  const body = el('tbody');
  const status = el('p', {class: 'muted small', role: 'status'});

  function line(row, n) {
    const cells = texts.map(
        (name, k) =>
            el(k === 0 ? 'th' : 'td', {scope: k === 0 ? 'row' : null}, row.values[name] + (k === 0 && best.has(n) ? ' ★' : '')));
    if (!finished(row))
      return el(
          'tr', {}, el('td'), cells, el('td', {colspan: present.length + 1}, row.status + (row.reason ? ': ' + row.reason : '')));
    const share = row.speed.mean / (fastest[row.values.model] ?? row.speed.mean);
    const box = row.run && row.run.curves ? el('input', {
      type: 'checkbox',
      'aria-label': 'Show the curves of ' + nameOf(row),
      onchange: (event) => {
        if (event.target.checked)
          shownRuns.add(n);
        else
          shownRuns.delete(n);
        whenShownChanges.forEach((call) => call());
      }
    }) :
        row.run                           ? '–' :
                                            '= ' + nameOf(own(row));
    if (box.tagName) box.checked = shownRuns.has(n);
    return el(
        'tr', {class: best.has(n) ? 'best' : null}, el('td', {}, box), cells,
        el('td', {class: 'barcell'}, el('span', {
             class: 'bar',
             style: 'width:' + (100 * share).toFixed(1) + '%',
             role: 'img',
             'aria-label': percent(share) + ' of the fastest'
           })),
        present.map((c) => el('td', {class: 'number'}, known(c.value(row)) ? c.text(row) : '–')));
  }
  function show() {
    let order = rows.map((row, n) => [row, n])
                    .filter(
                        ([row]) => Object.entries(filters).every(
                            ([name, value]) => name === '' ? Object.values(row.values).join(' ').toLowerCase().includes(value) ||
                                    row.label.toLowerCase().includes(value) :
                                                             row.values[name] === value));
    if (sorted) {
      const value = ([row]) => sorted.value ? sorted.value(row) : row.values[sorted.name];
      order.sort((x, y) => {
        const a = value(x), b = value(y);
        if (!sorted.value) return (ascending ? 1 : -1) * String(a).localeCompare(String(b), 'en', {numeric: true});
        if (!known(a) || !known(b)) return known(b) - known(a);  // what is not known comes last
        return ascending ? a - b : b - a;
      });
    }
    body.replaceChildren(...order.map(([row, n]) => line(row, n)));
    status.textContent = order.length === rows.length ? '' : order.length + ' of ' + rows.length + ' rows';
  }
  function header(column, isNumber) {
    const button = el('button', {type: 'button', title: column.help || null}, column.name);
    const th = el('th', {scope: 'col', class: isNumber ? 'number' : null, 'aria-sort': 'none'}, button);
    button.addEventListener('click', () => {
      ascending = sorted === column ? !ascending : !column.value;
      sorted = column;
      th.parentElement.querySelectorAll('[aria-sort]').forEach((other) => other.setAttribute('aria-sort', 'none'));
      th.setAttribute('aria-sort', ascending ? 'ascending' : 'descending');
      show();
    });
    return th;
  }
  const controls = el('div', {class: 'controls'});
  for (const name of texts) {
    const values = [...new Set(rows.map((row) => row.values[name]))];
    if (values.length < 2 || values.length > 40) continue;
    controls.append(
        el('label', {}, name,
           el('select', {
             onchange: (event) => {
               if (event.target.value === '')
                 delete filters[name];
               else
                 filters[name] = values[event.target.value];
               show();
             }
           },
              el('option', {value: ''}, 'all'), values.map((value, n) => el('option', {value: n}, value)))));
  }
  if (rows.length > 6)
    controls.append(el('label', {}, 'contains', el('input', {
                         type: 'search',
                         oninput: (event) => {
                           if (event.target.value.trim() === '')
                             delete filters[''];
                           else
                             filters[''] = event.target.value.trim().toLowerCase();
                           show();
                         }
                       })));
  const starred = best.size ? '★ faster than every other row of its model. ' : '';
  if (controls.children.length && rows.length > 2) section.append(controls);
  section.append(
      el('p', {class: 'muted small'}, starred,
         el('span', {class: 'barword'}, 'The bar is the speed as a share of the fastest of the model. '), 'A heading sorts.'),
      el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'All configurations'},
         el('table', {id: 'rows', 'aria-label': 'All configurations'},
            el('thead', {},
               el('tr', {}, el('th', {scope: 'col', title: 'whether the curves below show it'}, 'Curves'),
                  texts.map((name) => header({name}, false)), el('th', {scope: 'col', class: 'barcell'}, ''),
                  present.map((c) => header(c, true)))),
            body)),
      status);
  section.append(
      el('details', {}, el('summary', {}, 'What the columns mean'),
         el('ul', {class: 'plain'}, present.map((c) => el('li', {}, el('strong', {}, c.name), ': ' + c.help)))));
  show();
}
