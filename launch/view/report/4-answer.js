// The answer: which row wins, by how much, with what certainty, why, and what speaks against the comparison.

/** "(1.05 to 1.20)": the interval of the ratio of two speeds, if both have one. */
function ratioOf(a, b) {
  const ratio = a.speed.mean / b.speed.mean;
  if (!known(a.speed.low) || !known(b.speed.low)) return {ratio, text: times(ratio), interval: ''};
  const half = (s) => Math.max(Math.log(s.high / s.mean), Math.log(s.mean / s.low));
  const both = Math.hypot(half(a.speed), half(b.speed));
  return {ratio, text: times(ratio), interval: times(ratio * Math.exp(-both)) + ' to ' + times(ratio * Math.exp(both))};
}

/**
 * Why two rows cannot be told apart, by the rule that names a fastest: other work disturbed one, there are no intervals or they
 * meet, or predictions are within 2%. Empty if they can.
 */
function doubtBetween(a, b) {
  if (isPredicted)
    return Math.max(a.speed.mean / b.speed.mean, b.speed.mean / a.speed.mean) > 1.02 ? '' : 'predictions within 2% tell nothing';
  if (a.disturbance || b.disturbance) return a.disturbance || b.disturbance;
  if (![a, b].every((row) => known(row.speed.low))) return 'without repeats there is no 95% interval';
  return a.speed.low > b.speed.high || b.speed.low > a.speed.high ? '' : 'their 95% intervals meet';
}
const toldApart = (a, b) => !doubtBetween(a, b);

/** A model's finished rows, the fastest first. */
const bySpeed = (model) => model.ranked.map((n) => rows[n]).sort((a, b) => b.speed.mean - a.speed.mean);

/**
 * The row beside which a model's fastest is explained: the next one that it can be told apart from, or the slowest of these where
 * the next is nearly the same, which explains little. Where it can be told apart from none, the same of all.
 */
function rowToExplain(model) {
  const [best, ...others] = bySpeed(model), apart = others.filter((row) => toldApart(best, row)),
               able = apart.length ? apart : others;
  return ratioOf(best, able[0]).ratio > 1.05 ? able[0] : able[able.length - 1];
}
const ifNotChance = 'If the difference is not chance: ';

/** Without what follows from the run: "AMD EPYC, 2 threads" is an "AMD EPYC". */
const deviceOf = (row) => (own(row).run?.environment?.device || '').split(',')[0];

function speedText(row) {
  const s = row.speed, text = si(s.mean) + ' tokens/s';
  return known(s.low) ? text + ' (' + si(s.low) + ' to ' + si(s.high) + ')' : text;
}

/** What all rows have in common, for somebody who was not there: "strategy zero3-offload, ranks 2, ...". */
function commonText() {
  const said = ['strategy', 'ranks', 'transport', 'precision', 'device', 'dataset', 'sequence', 'global_batch', 'steps']
                   .filter((name) => !varying.includes(name.replace('_', '-')) && data.settings['config/' + name] !== undefined)
                   .map((name) => name.replace('_', ' ') + ' ' + data.settings['config/' + name]);
  return said.length ? 'All: ' + said.join(', ') + '.' : '';
}

/** "They differ in transport (socket and nvlink), and in 1 setting besides: see Why two differ." */
function differText(a, b) {
  const between = settingsBetween(a, b).filter(([name]) => name !== 'label'), columns = between.filter((s) => s[3]);
  if (!between.length) return 'Their settings are the same.';
  const said = columns.length ? columns : between.slice(0, 3), more = between.length - said.length;
  return 'They differ in ' + listed(said.map(([name, x, y]) => name + ' (' + x + ' and ' + y + ')')) +
      (more ? ', and in ' + more + (more === 1 ? ' setting' : ' settings') + ' besides: see Why two differ.' : '.');
}

const precisionOf = (row) => row.values.precision ?? settingOf(row, 'config/precision');
const shareOfProducts = (row) => shareOf(row, 'products') + shareOf(row, 'attention');
const shareOfWaits = (row) =>
    sum(Object.keys(timeOf(row).parts).filter((key) => kindOf(key) === 'communication').map((key) => shareOf(row, key)));

/**
 * Of two rows of different precisions: what the slower products of the wider one hide, and what the precision does to the loss.
 */
function precisionText(a, b) {
  if (precisionOf(a) === precisionOf(b) || !hasParts(a) || !hasParts(b)) return '';
  const [wide, narrow] = shareOfProducts(a) >= shareOfProducts(b) ? [a, b] : [b, a];
  const parity = [a, b].map((row) => row.figures?.parity), off = parity.every(known) ? Math.abs(parity[0] - parity[1]) : null;
  const losses = off === null ? '' :
                                ' Their final losses differ by ' + (off < 5e-5 ? 'less than 0.01%' : percent(off, 2)) +
          (off <= 0.001 ? ', no more than those of two layouts may.' :
                          ', more than those of two layouts may: see the losses before you choose by speed.');
  const waits = [wide, narrow].map(shareOfWaits);
  return 'Products and attention take ' + percent(shareOfProducts(wide)) + ' of the step in ' + precisionOf(wide) + ' and ' +
      percent(shareOfProducts(narrow)) + ' in ' + precisionOf(narrow) +
      (sum(waits) > 0 ? ', waiting for communication ' + waits.map((share) => percent(share)).join(' and ') : '') +
      ': what another strategy, transport or machine gains shows less in ' + precisionOf(wide) + ' than in ' +
      precisionOf(narrow) + '. Compare these at one precision.' + losses;
}

/** Of a model with one fastest row: which, and by how much. */
function winnerText(ranked) {
  const [best, second] = ranked, slowest = ranked[ranked.length - 1], two = ranked.length === 2;
  const next = ratioOf(best, second);
  return [
    el('p', {class: 'winner'},
       nameOf(best, false) + ' is the fastest: ' + next.text + ' the speed of ' + (two ? nameOf(second, false) : 'the next') +
           '.'),
    el('p', {},
       speedText(best) +
           (next.interval ? '; beside ' + (two ? 'the other ' : 'the next (' + nameOf(second, false) + ') ') + next.text +
                    ' with a 95% interval of ' + next.interval :
                            '') +
           (two ? '' : '; ' + ratioOf(best, slowest).text + ' the slowest (' + nameOf(slowest, false) + ')') + '.' +
           (isPredicted ? ' Predicted, not measured.' : ''))
  ];
}

/** Of a model whose fastest row cannot be told apart from all others: from which it cannot, and why. */
function tiedText(model) {
  const tied = model.ranked.slice(0, model.leaders).map((n) => rows[n]), best = tied[0],
        others = bySpeed(model).filter((row) => !tied.includes(row));
  const meet = /intervals meet|within 2%/.test(model.reason);
  const content = [
    el('p', {class: 'winner'},
       meet ? 'No fastest can be named: ' + listed(tied.map((row) => nameOf(row, false))) + ' cannot be told apart.' :
              nameOf(best, false) + ' was the fastest, ' + ratioOf(best, tied[1]).text + ' the speed of ' +
               nameOf(tied[1], false) + ', but that is not certain.'),
    el('p', {},
       tied.slice(0, 4).map((row) => nameOf(row, false) + ' ' + speedText(row)).join('; ') + '. The reason: ' + model.reason +
           '.')
  ];
  if (others.length) {
    const last = others[others.length - 1];
    content.push(
        el('p', {},
           nameOf(best, false) + ' is faster than ' +
               (others.length === 1 ? nameOf(last, false) + ': ' + ratioOf(best, last).text + ' its speed.' :
                                      'the ' + others.length + ' others: ' + ratioOf(best, last).text + ' the slowest (' +
                        nameOf(last, false) + ').')));
  }
  return content;
}

/** In what a model's fastest row and another one differ, and why that takes longer. */
function whyText(model) {
  const best = bySpeed(model)[0], other = rowToExplain(model), why = because(other, best);
  const content =
      [el('p', {},
          model.ranked.length > 2 ? 'Beside ' + nameOf(other, false) + ': ' + lower(differText(other, best)) :
                                    differText(other, best))];
  if (why) {
    const hides = precisionText(other, best);
    content.push(
        el('p', {class: 'because'}, el('strong', {}, toldApart(best, other) ? 'Why: ' : ifNotChance),
           nameOf(other, false) + ' takes ' + time(why.total) + ' longer ' + why.unit + ': ' + why.text + ' ',
           el('span', {class: 'muted'}, '(' + sourceText(other) + ')')),
        hides ? el('p', {class: 'because'}, el('strong', {}, 'What the precision hides: '), hides) : '');
  } else if (!hasParts(best) || !hasParts(other)) {
    const without = hasParts(best) ? other : best;
    content.push(
        el('p', {class: 'because muted'},
           'Why cannot be said: ' + nameOf(without, false) + ' has no times of its instructions. ' +
               (timeOf(without)?.reason || '')));
  }
  return content;
}

function verdictOf(model) {
  const ranked = bySpeed(model);
  const content = ranked.length === 0 ? [el('p', {class: 'winner'}, 'No run finished.')] :
      ranked.length === 1 ?
                                        [
                                          el('p', {class: 'winner'}, nameOf(ranked[0], false) + ': ' + speedText(ranked[0])),
                                          el('p', {}, 'There is no other run of this model to hold it against.')
                                        ] :
                                        [...(model.leaders === 1 ? winnerText(ranked) : tiedText(model)), ...whyText(model)];
  return el('div', {class: 'verdict'}, varying.includes('model') ? el('p', {class: 'model'}, model.model) : '', content);
}

/** What differs beyond the columns, and what the figures rest on. */
function cautions() {
  const items = [];
  for (const warning of data.warnings) items.push(warning.replace(/^(warning|note): /, ''));
  // Where all have one global batch, a rank's part of it follows from the number of ranks.
  const follows = (name) => name === 'batch' && Number(data.settings['config/global_batch'] || 0) > 0;
  for (const c of data.conditions.filter((condition) => !follows(condition.name)))
    items.push(
        'The rows differ in ' + c.name + ', too: ' +
        c.values
            .map(
                (v) => v.value + ' (' + (v.rows.length === 1 ? v.rows[0] : v.rows[0] + ' and ' + (v.rows.length - 1) + ' more') +
                    ')')
            .join('; '));
  const precisions = new Set(rows.filter(finished).map((row) => row.values.precision ?? settingOf(row, 'config/precision')));
  const machines = new Set(rows.filter(finished).map((row) => row.values.machine ?? deviceOf(row)));
  if (machines.size > 1 && precisions.has('fp32'))
    items.push(
        'Machines are compared with runs in fp32 among them: in fp32 most of what distinguishes newer devices, their bf16 and ' +
        'fp8 products, is not used. Compare at bf16.');
  if (machines.size > 1 && precisions.size > 1)
    items.push('Machines and precisions differ at once: compare rows of equal precision.');
  const in_fp32 = rows.filter((row) => finished(row) && row.run && hasParts(row));
  if (precisions.size === 1 && precisions.has('fp32') && machines.size === 1 && in_fp32.length > 1) {
    const most = Math.max(...in_fp32.map(shareOfProducts));
    if (most > 0.5)
      items.push(
          'All rows run in fp32, where products and attention take up to ' + percent(most) +
          ' of the step: they hide part of what strategy, transport and batch change. At bf16 that shows more.');
  }
  const once = rows.filter((row) => finished(row) && row.run && row.speed.count === 1 && !isPredicted).length;
  if (once)
    items.push(
        (once === 1 ? 'One row was' : once + ' rows were') +
        ' measured once: there is no interval, and nothing can be told apart from it with certainty.');
  const predicted = rows.filter((row) => row.run?.time?.source === 'simulated').length;
  if (predicted)
    items.push('Of ' + predicted + (predicted === 1 ? ' row' : ' rows') + ' the parts of the time are simulated, not measured.');
  return items;
}

function speedChart() {
  const shown = rows.filter((row) => finished(row) && row.run).slice().sort((a, b) => b.speed.mean - a.speed.mean).slice(0, 16);
  if (shown.length < 2) return '';
  const all = rows.filter((row) => finished(row) && row.run).length;
  const winners = new Set(data.models.filter((m) => m.leaders === 1 && m.ranked.length > 1).map((m) => rows[m.ranked[0]]));
  const label = (row) => {
    const text = nameOf(row);
    return innerWidth < 600 && text.length > 20 ? text.split(', ') : text;
  };
  const intervals = shown.some((row) => known(row.speed.low));
  const digit = 10 ** Math.floor(Math.log10(1.4 * shown[0].speed.mean)),
        end = Math.ceil(2.8 * shown[0].speed.mean / digit) * digit / 2,
        cut = shown.some((row) => row.speed.high > end);  // intervals of two repeats can be very long
  return chart(
      Math.max(90, shown.length * (innerWidth < 600 ? 46 : 30) + 44),
      'Speeds: ' + shown.map((row) => nameOf(row) + ' ' + speedText(row)).join('; '),
      'Tokens per second of all ranks' +
          (intervals ? '. Thin bars: 95% interval over the repeats' + (cut ? ', cut at the edge' : '') : '') +
          (all > shown.length ? '. The fastest ' + shown.length + ' of ' + all : '') +
          (winners.size ? '. In full colour: faster than every other of its model.' : '.'),
      () => ({
        type: 'bar',
        data: {
          labels: shown.map(label),
          datasets: [
            {
              data: shown.map((row) => row.speed.mean),
              backgroundColor: shown.map((row) => colour(winners.has(row) ? 'bar' : 'bar-soft')),
              grouped: false,
              barPercentage: 0.78,
              order: 2
            },
            {
              data: shown.map((row) => known(row.speed.low) ? [row.speed.low, row.speed.high] : null),
              backgroundColor: colour('ink'),
              grouped: false,
              barThickness: 2,
              order: 1
            },
          ]
        },
        options: {
          indexAxis: 'y',
          layout: {padding: {right: 64}},
          scales: {
            x: axis('', {
              beginAtZero: true,
              max: cut ? end : undefined,
              ticks: {color: colour('muted'), callback: (v) => si(v), maxTicksLimit: 6}
            }),
            y: axis('', {grid: {display: false}, ticks: {color: colour('ink'), autoSkip: false}})
          },
          plugins: {
            tooltip: {callbacks: {label: (i) => speedText(shown[i.dataIndex])}},
            barLabels: {label: (n) => si(shown[n].speed.mean), end: (n) => Math.min(shown[n].speed.high ?? 0, end), room: 64}
          }
        },
      }));
}

function effectTable(effects) {
  const doubt = (e) => e.disturbance                              ? 'means nothing here: ' + e.disturbance :
      known(e.speed.low) && e.speed.low <= 1 && e.speed.high >= 1 ? 'cannot be told from 1×' :
                                                                    '';
  return table(
      'By rows that differ in it alone; geometric means' + (isPredicted ? '' : ' with 95% intervals'),
      [
        {name: 'Choice'}, {name: 'Speed', number: true}, {name: '95% interval', number: true}, {name: 'Pairs', number: true},
        {name: ''}
      ],
      effects.map(
          (e) =>
              [e.option + ' ' + e.value + ' over ' + e.reference, times(e.speed.mean),
               known(e.speed.low) ? times(e.speed.low) + ' to ' + times(e.speed.high) : '–', String(e.pairs),
               doubt(e) && el('span', {class: 'remark'}, doubt(e))]));
}

/** What a run's own advice promised, with what the rows of this page measured of it, where one of them is that change alone. */
function adviceText(row, text) {
  const option = /^--([a-z0-9.-]+) (\S+): /.exec(text);
  if (!option || !choiceNames.includes(option[1])) return text;
  const changed = rows.find(
      (other) => finished(other) && other !== row &&
          choiceNames.every(
              (name) => name === option[1] ? other.values[name] === option[2] : other.values[name] === row.values[name]));
  if (!changed) return text;
  return option[0] + 'simulated ' + text.slice(option[0].length) + '; measured here ' + ratioOf(changed, row).text +
      (toldApart(changed, row) ? '' : ', which is not certain');
}

function showAnswer() {
  const section = byId('answer');
  const machines = [...new Set(rows.filter(finished).map(deviceOf).filter(Boolean))];
  byId('about').textContent = (rows.length === 1 ? '1 row' : rows.length + ' rows') + ', ' +
      sum(rows.map((row) => (row.run?.repeats || []).length)) + ' runs' + (machines.length ? ', on ' + machines.join('; ') : '') +
      '. ' + commonText() + ' Written ' + data.written + '.';
  section.append(...data.models.map(verdictOf), speedChart() || '');
  const doubts = cautions();
  if (doubts.length)
    section.append(
        el('div', {class: 'mind'}, el('h3', {}, 'Before you decide'), el('ul', {}, doubts.map((text) => el('li', {}, text)))));
  const effects = data.effects.filter((e) => e.option !== 'label');
  if (effects.length) section.append(el('h3', {}, 'What each choice is worth'), effectTable(effects));
  const advice = rows.filter((row) => row.run && (row.advice || []).length);
  if (advice.length) {
    const lines = new Map();
    for (const row of advice)
      for (const text of row.advice) {
        const change = text.replace(/: .*$/, '');
        lines.set(change, [...(lines.get(change) || []), nameOf(row) + ': ' + adviceText(row, text)]);
      }
    section.append(
        el('h3', {}, 'What the runs say is left'),
        el('ul', {class: 'plain'},
           [...lines.values()].slice(0, 6).map(
               (texts) =>
                   el('li', {},
                      texts[0] +
                          (texts.length > 1 ? ' – and ' + (texts.length - 1) + (texts.length === 2 ? ' row' : ' rows') + ' more' :
                                              '')))));
  }
}
