// Why two rows differ: a waterfall from one step to the other, and the instructions behind each part.

/** Instructions of a group as program text, in a row below its own that `button` opens. Null: none is there. */
function programRow(entry, button, columns) {
  const {a, b} = entry.lines;
  if (!a.length && !b.length) return null;
  const said = (side, lines) => lines.length ? [el('div', {class: 'muted small'}, side), el('pre', {}, lines.join('\n'))] : [];
  const row =
      el('tr', {class: 'program', hidden: true},
         el('td', {colspan: columns}, a.join() === b.join() ? said('A and B', a) : [said('A', a), said('B', b)].flat()));
  button.addEventListener('click', () => {
    row.hidden = !row.hidden;
    button.setAttribute('aria-expanded', String(!row.hidden));
  });
  return row;
}

/** A table of groups of instructions, of which each opens to its program text. */
function programTable(head, list, line) {
  const buttons = list.map((e) => el('button', {type: 'button', class: 'open', 'aria-expanded': 'false'}, e.text));
  const below = list.map((e, n) => programRow(e, buttons[n], head.length));
  const box = table('', head, list.map((e, n) => [below[n] ? buttons[n] : e.text, ...line(e)]));
  [...box.querySelectorAll('tbody tr')].forEach((row, n) => below[n] && row.after(below[n]));
  return box;
}

function itemTable(part, a, b, d) {
  const found = new Map();
  for (const [row, side, scale] of [[a, 'a', d.scaleA], [b, 'b', d.scaleB]])
    for (const item of itemsOf(row).filter((i) => i.part === part)) {
      const entry = found.get(item.text) ||
          {text: item.text, a: 0, b: 0, count: {}, dtype: {}, flops: {}, bytes: {}, own: {}, lines: {a: [], b: []}};
      entry[side] += item.seconds * scale;
      for (const [name, value] of [['count', item.count], ['flops', item.flops], ['bytes', item.bytes], ['own', item.own]])
        entry[name][side] = (entry[name][side] || 0) + value;
      entry.lines[side].push(...item.lines);
      entry.dtype[side] = [...new Set([...(entry.dtype[side] || []), item.dtype])].filter(Boolean);
      found.set(item.text, entry);
    }
  if (found.size === 0) return el('p', {class: 'muted'}, 'No instructions lie behind this part.');
  const list = [...found.values()].sort((x, y) => Math.abs(y.b - y.a) - Math.abs(x.b - x.a));
  const rate = (entry, side) => {
    const busy = entry.own[side];
    if (!busy) return '–';
    if (entry.flops[side] > 0) return si(entry.flops[side] / busy, 'FLOP/s');
    return si(entry.bytes[side] / busy, 'B/s');
  };
  const most = 15, count = (n) => n === undefined ? '–' : Number.isInteger(n) ? String(n) : n.toFixed(1);
  const line = (e) =>
      [count(e.count.a) + ' / ' + count(e.count.b),
       listed(e.dtype.a || []) + (String(e.dtype.a) !== String(e.dtype.b) ? ' / ' + listed(e.dtype.b || []) : ''), time(e.a),
       time(e.b), signed(time(e.b - e.a)), rate(e, 'a') + ' / ' + rate(e, 'b')];
  const head = [
    {name: 'Instructions'}, {name: 'Count A / B', number: true}, {name: 'Operands'}, {name: 'A', number: true},
    {name: 'B', number: true}, {name: 'B − A', number: true}, {name: 'Rate A / B', number: true}
  ];
  const box = el('div', {}, programTable(head, list.slice(0, most), line));
  if (list.length > most)
    box.append(el('details', {}, el('summary', {}, (list.length - most) + ' more'), programTable(head, list.slice(most), line)));
  if (kindOf(part) === 'communication')
    box.append(el(
        'p', {class: 'muted small'},
        'Times: what compute waited for it. Rates: bytes of a rank over the whole time of the collective, hidden time included.'));
  return box;
}

/** Opens a part of the table below the waterfall. */
function openPart(key) {
  const button = [...document.querySelectorAll('#parts tr')].find((row) => row.dataset.part === key)?.querySelector('.open');
  if (!button) return;
  if (button.getAttribute('aria-expanded') === 'false') button.click();
  button.scrollIntoView({block: 'center'});
  button.focus();
}

function waterfall(d, nameA, nameB) {
  const shown = d.parts.filter((p) => Math.abs(p.difference) > 0.002 * Math.max(d.a, d.b)),
        rest = sum(d.parts.filter((p) => !shown.includes(p)).map((p) => p.difference));
  const labels = ['A: ' + nameA], spans = [[0, d.a]], texts = [time(d.a)], keys = [''];
  let at = d.a;
  const step = (key, name, difference) => {
    labels.push(name);
    spans.push([at, at + difference]);
    texts.push(signed(time(difference)));
    keys.push(key);
    at += difference;
  };
  for (const part of shown) step(part.key, partName(part.key), part.difference);
  if (Math.abs(rest) > 0.002 * Math.max(d.a, d.b)) step('untimed', 'All smaller parts', rest);
  labels.push('B: ' + nameB);
  spans.push([0, d.b]);
  texts.push(time(d.b));
  keys.push('');
  const narrow = innerWidth < 600, wrap = (text) => {
    const lines = [''];
    for (const word of text.split(' ')) {
      if ((lines[lines.length - 1] + ' ' + word).length > (narrow ? 17 : 34))
        lines.push(word);
      else
        lines[lines.length - 1] = (lines[lines.length - 1] + ' ' + word).trim();
    }
    return lines.filter(Boolean);
  };
  const all = d.parts.map((p) => p.key);
  return chart(
      labels.length * (narrow ? 54 : 42) + 50,
      'Waterfall from ' + time(d.a) + ' to ' + time(d.b) + ' ' + d.unit + ': ' +
          labels.slice(1, -1).map((name, n) => name + ' ' + texts[n + 1]).join('; '),
      'From a step of A, the faster, to a step of B, part by part; ' + d.unit +
          '. Each bar begins where the one above it ends. A ' +
          'click on a bar opens its instructions in the table below.',
      () => ({
        type: 'bar',
        data: {
          labels: labels.map(wrap),
          datasets: [{
            data: spans,
            backgroundColor: keys.map((key) => key ? partColour(key, all) : colour('muted')),
            barPercentage: 0.72,
            minBarLength: 1.5
          }]
        },
        options: {
          indexAxis: 'y',
          layout: {padding: {right: 76}},
          onClick: (event, found) => openPart(keys[found[0]?.index]),
          scales: {
            x: axis(
                '',
                {beginAtZero: true, ticks: {color: colour('muted'), callback: (v) => time(v), maxTicksLimit: narrow ? 4 : 8}}),
            y: axis('', {grid: {display: false}, ticks: {color: colour('ink'), autoSkip: false}})
          },
          plugins: {barLabels: {label: (n) => texts[n], room: 76}, tooltip: {callbacks: {label: (i) => texts[i.dataIndex]}}}
        },
      }));
}

function partTable(a, b, d) {
  const all = d.parts.map((p) => p.key), total = d.b - d.a, body = el('tbody');
  d.parts.forEach((part, n) => {
    const id = 'part-' + n, foldRow = el('tr', {class: 'fold', id, hidden: true}),
          rate = [rateOf(a, part.key), rateOf(b, part.key)];
    const opens = itemsOf(a).concat(itemsOf(b)).some((item) => item.part === part.key);
    const swatch = el('span', {class: 'swatch', style: 'background:' + partColour(part.key, all), 'aria-hidden': 'true'});
    const button = opens ? el('button', {
      type: 'button',
      class: 'open',
      'aria-expanded': 'false',
      'aria-controls': id,
      onclick: () => {
        const open = foldRow.hidden;
        if (open && !foldRow.firstChild) foldRow.append(el('td', {colspan: 6}, itemTable(part.key, a, b, d)));
        foldRow.hidden = !open;
        button.setAttribute('aria-expanded', String(open));
      }
    },
                              swatch, partName(part.key)) :
                           el('span', {style: 'padding-left:1.1em'}, swatch, partName(part.key));
    body.append(
        el('tr', {'data-part': part.key, 'data-difference': part.difference},
           el('th', {scope: 'row'}, button, el('div', {class: 'muted small meaning'}, partMeaning(part.key))),
           el('td', {class: 'number'}, part.key === 'clock' ? '' : time(part.a)),
           el('td', {class: 'number'}, part.key === 'clock' ? '' : time(part.b)),
           el('td', {class: 'number ' + (part.difference > 0 ? 'slower' : 'faster')}, signed(time(part.difference))),
           el('td', {class: 'number'}, total ? percent(part.difference / total) : '–'),
           el('td', {class: 'small'},
              rate[0] || rate[1] ?
                  el('span', {class: 'remark'}, (rate[0] || '–') + (rate[0] !== rate[1] ? ' / ' + (rate[1] || '–') : '')) :
                  '')),
        foldRow);
  });
  const summed = sum(d.parts.map((p) => p.difference));
  body.append(
      el('tr', {class: 'total', id: 'sum', 'data-sum': summed, 'data-difference': total}, el('th', {scope: 'row'}, 'Step'),
         el('td', {class: 'number'}, time(d.a)), el('td', {class: 'number'}, time(d.b)),
         el('td', {class: 'number'}, signed(time(total))), el('td', {class: 'number'}, '100%'), el('td')));
  return el(
      'div', {},
      el('p', {class: 'muted small'},
         'Times ' + d.unit +
             '; of several classes of ranks the mean. A part opens to its instructions, and these to their program text.'),
      el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'The parts of the difference'},
         el('table', {id: 'parts', 'aria-label': 'The parts of the difference'},
            el('thead', {},
               el('tr', {},
                  ['Part', 'A', 'B', 'B − A', 'Share', 'Reached A / B'].map(
                      (name, n) => el('th', {scope: 'col', class: n > 0 && n < 5 ? 'number' : null}, name)))),
            body)));
}

function showWhy() {
  const section = byId('why'), candidates = rows.map((row, n) => [row, n]).filter(([row]) => finished(row) && row.run);
  if (candidates.length < 2) {
    section.append(
        empty('A difference takes two runs that finished; ' + (candidates.length === 1 ? 'there is one.' : 'there is none.')));
    if (candidates.length === 1 && hasParts(candidates[0][0])) section.append(onePart(candidates[0][0]));
    return;
  }
  // By default the pair that the answer explains. A is always the faster one, so that text, waterfall and table have one sign:
  // what B takes longer.
  const model = data.models.find((m) => m.ranked.length > 1);
  let chosen =
      model ? [bySpeed(model)[0], rowToExplain(model)].map((row) => rows.indexOf(row)) : candidates.slice(0, 2).map(([, n]) => n);
  const box = el('div');
  const select = (which, label) => el(
      'label', {}, label,
      el('select', {
        id: 'pair-' + which,
        onchange: (event) => {
          chosen[which] = Number(event.target.value);
          show();
        }
      },
         candidates.map(
             ([row, n]) => el(
                 'option', {value: n, selected: n === chosen[which]}, nameOf(row) + ' – ' + si(row.speed.mean) + ' tokens/s'))));
  const selects = [select(0, 'A'), select(1, 'B')];
  function show() {
    if (difference(rows[chosen[0]], rows[chosen[1]]).a > difference(rows[chosen[0]], rows[chosen[1]]).b)
      chosen = [chosen[1], chosen[0]];
    selects.forEach((s, n) => {
      s.querySelector('select').value = chosen[n];
    });
    const [a, b] = chosen.map((n) => rows[n]), d = difference(a, b), ratio = ratioOf(a, b), doubt = doubtBetween(a, b);
    const content =
        [el('p', {},
            doubt ? nameOf(a) + ' and ' + nameOf(b) + ' cannot be told apart: ' + ratio.text + ' the speed, but ' + doubt + '.' :
                    el('strong', {}, nameOf(a) + ' is ' + ratio.text + ' the speed of ' + nameOf(b) + '.'),
            ' ' + speedText(a) + ' beside ' + speedText(b) + '.')];
    if (a === b) {
      fill(box, empty('A and B are the same row.'));
      return;
    }
    const reason = because(b, a);
    if (reason)
      content.push(
          el('p', {},
             (doubt ? ifNotChance : '') + nameOf(b) + ' takes ' + time(reason.total) + ' longer ' + reason.unit + ': ' +
                 reason.text));
    if (d.parts.length === 0) {
      for (const row of [a, b])
        if (!hasParts(row))
          content.push(empty(nameOf(row) + ': ' + (timeOf(row)?.reason || 'its archive holds no times of instructions.')));
    } else {
      content.push(
          waterfall(d, nameOf(a), nameOf(b)), partTable(a, b, d),
          el('p', {class: 'muted small'},
             'Times of instructions: A ' + sourceText(a) + '; B ' + sourceText(b) + '.' +
                 (d.parts.some((p) => p.key === 'clock') ? '' :
                                                           ' Clocks of the devices are ' +
                          (known(own(a).figures.clock) && known(own(b).figures.clock) ?
                               'equal within 0.5%.' :
                               'not recorded, so that no part of the difference is put down to them.'))));
    }
    const between = settingsBetween(a, b);
    const more = between.filter((s) => !s[3]).length;
    content.push(
        el('details', {open: between.length <= 6},
           el('summary', {},
              'What differs between the two: ' + between.length + (between.length === 1 ? ' setting' : ' settings') +
                  (more ? ', ' + more + ' besides the columns of the table' : '')),
           table('', [{name: 'Setting'}, {name: 'A'}, {name: 'B'}], between.map(([name, x, y]) => [name, x, y]))));
    fill(box, content);
  }
  section.append(el('div', {class: 'controls'}, selects), box);
  show();
}

/** The parts of a single run. */
function onePart(row) {
  const t = timeOf(row), keys = Object.keys(t.parts).sort((x, y) => partOrder.indexOf(kindOf(x)) - partOrder.indexOf(kindOf(y)));
  return el(
      'div', {}, el('h3', {}, 'Where its step goes'),
      table(
          'Times ' + sourceText(row),
          [{name: 'Part'}, {name: 'Seconds', number: true}, {name: 'Share', number: true}, {name: 'Reached'}],
          keys.map((key) => [partName(key), time(t.parts[key]), percent(t.parts[key] / t.step_seconds), rateOf(row, key)])));
}
