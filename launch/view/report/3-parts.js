// The parts of a step's time, and the difference of two rows as a sum over them.
const partNames = {
  products: 'Matrix products',
  attention: 'Attention',
  memory_bound: 'Memory-bound ops',
  optimizer: 'Optimizer',
  bubble: 'Pipeline bubble',
  copies: 'Waiting for copies from the host',
  gaps: 'Gaps between instructions',
  clock: 'Clock',
  untimed: 'Steps that were not timed',
  host: 'Gaps and the host',
  data: 'Waiting for data',
};
const partMeanings = {
  products: 'linears, the LM head and their gradients',
  attention: 'products of heads',
  memory_bound: 'norms, activations, casts, and all else without products',
  optimizer: 'the update of the parameters',
  bubble: 'a rank waits for other stages of the pipeline',
  copies: 'compute waits for what comes from the host or goes there',
  gaps: 'nothing runs and nothing is awaited: the host starts instructions, writes inputs, reads metrics',
  clock: 'products and attention at another clock of the device',
  untimed: 'what the steps of the table took longer or shorter than those that were timed',
};
const partOrder =
    ['products', 'attention', 'memory_bound', 'optimizer', 'communication', 'bubble', 'copies', 'gaps', 'clock', 'untimed'];
const kindOf = (part) => part.split(':')[0];
const partName = (part) =>
    kindOf(part) === 'communication' ? 'Waiting for communication (' + part.slice(14) + ')' : partNames[part] || part;
const partMeaning = (part) => kindOf(part) === 'communication' ?
    'collectives and messages over the axis ' + part.slice(14) + ' that no computing hides; slower ranks included' :
    partMeanings[part];

function partColour(part, all) {
  if (kindOf(part) !== 'communication') return colour(part);
  const axes = all.filter((p) => kindOf(p) === 'communication');
  return colour(axes.indexOf(part) % 2 === 0 ? 'communication' : 'communication-2');
}

const timeOf = (row) => own(row).run?.time;
const hasParts = (row) => finished(row) && !!timeOf(row)?.parts;

/** How the times of a row came about, for a sentence. */
function sourceText(row) {
  const t = timeOf(row);
  if (!t) return 'nothing is known';
  if (t.source === 'measured') return 'measured over ' + t.measured_steps + (t.measured_steps === 1 ? ' step' : ' steps');
  if (t.source === 'predicted') return 'predicted, not measured';
  if (t.source === 'simulated')
    return 'simulated for ' + (t.simulation.machine || 'its machine') + ' and stretched to the measured step, not measured';
  return t.reason;
}

/**
 * What `b` takes longer (positive) or shorter than `a`, by part; the parts sum to the difference of the steps. Where steps have
 * different numbers of tokens, times are per 1,000 tokens.
 */
function difference(a, b) {
  const tokens = (row) => own(row).run.tokens_per_step, same = !tokens(a) || !tokens(b) || tokens(a) === tokens(b);
  const scale = (row) => same ? 1 : 1000 / tokens(row);
  const step = (row) => own(row).figures.step_seconds * scale(row);
  const result =
      {unit: same ? 'per step' : 'per 1,000 tokens', a: step(a), b: step(b), scaleA: scale(a), scaleB: scale(b), parts: []};
  if (!hasParts(a) || !hasParts(b)) return result;
  const keys = [...new Set([...Object.keys(timeOf(a).parts), ...Object.keys(timeOf(b).parts)])];
  const seconds = (row, key) => (timeOf(row).parts[key] || 0) * scale(row);
  for (const key of keys)
    result.parts.push({key, a: seconds(a, key), b: seconds(b, key), difference: seconds(b, key) - seconds(a, key)});
  // What the products of both would differ by at the mean of their clocks is theirs, the rest the clock's: so it is the same from
  // b to a.
  const clockA = own(a).figures.clock, clockB = own(b).figures.clock;
  if (known(clockA) && known(clockB) && clockA > 0 && Math.abs(clockB / clockA - 1) > 0.005) {
    const mean = (clockA + clockB) / 2;
    let moved = 0;
    for (const part of result.parts.filter((p) => p.key === 'products' || p.key === 'attention')) {
      const of = part.b * (1 - clockB / mean) - part.a * (1 - clockA / mean);
      part.difference -= of;
      moved += of;
    }
    result.parts.push({key: 'clock', a: 0, b: 0, difference: moved});
  }
  result.parts.sort((x, y) => partOrder.indexOf(kindOf(x.key)) - partOrder.indexOf(kindOf(y.key)) || x.key.localeCompare(y.key));
  return result;
}

/** Groups of instructions of a row, as objects. */
function itemsOf(row) {
  return (timeOf(row)?.items || []).map(([part, text, dtype, count, seconds, ownSeconds, flops, size, lines]) => ({
                                          part: data.texts[part],
                                          text: data.texts[text],
                                          dtype: data.texts[dtype],
                                          count,
                                          seconds,
                                          own: ownSeconds,
                                          flops,
                                          bytes: size,
                                          lines: (lines || []).map((n) => data.texts[n])
                                        }));
}

/** What a part reached: "51.2 GFLOP/s in f32", "11 MB/s". */
function rateOf(row, part) {
  const items = itemsOf(row).filter((item) => item.part === part), busy = sum(items.map((i) => i.own));
  if (busy <= 0) return '';
  if (part === 'products' || part === 'attention') {
    const widest = {};
    for (const item of items) widest[item.dtype] = (widest[item.dtype] || 0) + item.own;
    const dtypes = Object.entries(widest).filter(([name]) => name).sort((x, y) => y[1] - x[1]).map(([name]) => name);
    return si(sum(items.map((i) => i.flops)) / busy, 'FLOP/s') + (dtypes.length ? ' in ' + dtypes[0] : '');
  }
  if (kindOf(part) === 'communication')
    return bytes(sum(items.map((i) => i.bytes))) + ' at ' + si(sum(items.map((i) => i.bytes)) / busy, 'B/s');
  return '';
}

const lower = (text) => text.charAt(0).toLowerCase() + text.slice(1);
/** Of the steps whose parts were timed: their sum is the whole. */
const shareOf = (row, key) => {
  const {untimed, ...timed} = timeOf(row).parts;
  return (timed[key] || 0) / sum(Object.values(timed));
};

/**
 * Of a part that waits for communication, the strategies and transports of its axes ("data+context"), as a row has them; null
 * without.
 */
function axisOf(row, part) {
  const axes = part.slice(14).split('+').map((name) => (own(row).run?.topology?.axes || []).find((axis) => axis.name === name));
  if (axes.includes(undefined)) return null;
  const of = (key) => [...new Set(axes.map((axis) => axis[key]))].join('+');
  return {strategy: of('strategy'), transport: of('transport')};
}

/** Ranks of a row: where they differ, the rate of one rank says nothing about the step. */
const ranksOf = (row) => (own(row).run?.topology?.axes || []).reduce((ranks, axis) => ranks * axis.size, 1);

/** The collectives behind a part, those that compute waits for the longest first: "all_gather and reduce_scatter". */
function collectivesOf(row, part) {
  const waits = new Map();
  for (const item of itemsOf(row).filter((i) => i.part === part)) {
    const op = item.text.split(' ')[0];
    waits.set(op, (waits.get(op) || 0) + item.seconds);
  }
  const total = sum([...waits.values()]);
  return listed([...waits].filter(([, s]) => s > 0.1 * total).sort((x, y) => y[1] - x[1]).slice(0, 3).map(([op]) => op));
}

/**
 * What waiting for communication comes from: "all_gather of zero3-offload over socket: 11.5 MiB at 42.2 MB/s instead of 11.5 MiB
 * at 768 MB/s over nvlink; 91% of the step instead of 5%".
 */
function communicationText(slow, fast, part) {
  const [there, here] = [axisOf(slow, part), axisOf(fast, part)], ops = collectivesOf(slow, part),
                of = there ? there.strategy : '';
  const rates = [rateOf(slow, part), rateOf(fast, part)], over = (axis) => axis ? ' over ' + axis.transport : '';
  const other = !here ? ', which ' + nameOf(fast, false) + ' does not have' :
      !rates[1]       ? '' :
                        ' instead of ' + rates[1] + (here.transport !== there?.transport ? over(here) : '');
  return (ops ? ops + ' ' : '') + (of ? 'of ' + of : '') + over(there) + (rates[0] ? ': ' + rates[0] + other : other) + '; ' +
      percent(shareOf(slow, part)) + ' of its step instead of ' + percent(shareOf(fast, part));
}

/**
 * Of a part that computes: how much more there is to do, and at which rate: "1.33× the FLOP at 89.9 GFLOP/s instead of 96.3
 * GFLOP/s".
 */
function reachedText(slow, fast, part, d) {
  const [there, here] = [rateOf(slow, part), rateOf(fast, part)],
                work = (row, scale) => scale * sum(itemsOf(row).filter((item) => item.part === part).map((item) => item.flops));
  const more = work(slow, d.scaleB) / work(fast, d.scaleA);
  const rate = there && here && there !== here ? there + ' instead of ' + here : there && !here ? there : '';
  return [known(more) && Math.abs(more - 1) > 0.02 ? times(more) + ' the FLOP' : '', rate].filter(Boolean).join(' at ');
}

/**
 * The sentence that says why one is slower: the parts that make up most of what is longer, and what is shorter. Where that is
 * much, what is longer is more than the difference, and shares of it would say nothing.
 */
function because(slow, fast) {
  const d = difference(fast, slow), total = d.b - d.a;
  if (d.parts.length === 0 || total <= 0) return null;
  const larger = d.parts.filter((p) => p.difference > 0 && p.key !== 'untimed').sort((x, y) => y.difference - x.difference);
  const longer = sum(larger.map((p) => p.difference)), overshoots = longer > 1.05 * total;
  const chosen = [];
  for (const part of larger) {
    if (chosen.length && sum(chosen.map((p) => p.difference)) >= 0.8 * longer || chosen.length === 3 ||
        part.difference < 0.1 * total)
      break;
    chosen.push(part);
  }
  const untimed = d.parts.find((p) => p.key === 'untimed')?.difference || 0;
  const scatter = Math.abs(untimed) > 0.5 * total ?
      ' But ' + signed(time(untimed)) + ' lies in steps that were not timed: runs scatter by more than these two differ.' :
      '';
  if (!chosen.length) return scatter ? {total, unit: d.unit, text: 'no part of the step explains it.' + scatter} : null;
  const said = chosen.map((part) => {
    const name = partName(part.key), parts = overshoots ? '' : ', ' + percent(part.difference / total) + ' of it';
    if (kindOf(part.key) === 'communication' && slow.run && timeOf(slow).source !== 'predicted')
      return lower(name) + ' ' + signed(time(part.difference)) + parts + ' (' + communicationText(slow, fast, part.key).trim() +
          ')';
    const reached = ranksOf(slow) === ranksOf(fast) ? reachedText(slow, fast, part.key, d) : '';
    return lower(name) + ' ' + signed(time(part.difference)) + parts + (reached ? ' (' + reached + ')' : '');
  });
  const smaller =
      d.parts.filter((p) => p.difference < -0.1 * total && p.key !== 'untimed').sort((x, y) => x.difference - y.difference);
  const against =
      smaller.length ? ' Against it: ' + listed(smaller.map((p) => lower(partName(p.key)) + ' ' + time(p.difference))) + '.' : '';
  return {total, unit: d.unit, text: listed(said) + '.' + against + scatter};
}

/** Options and surroundings in which two rows differ: [[name, a, b]]; what was chosen to differ first. */
function settingsBetween(a, b) {
  const chosen =
      varying.filter((name) => a.values[name] !== b.values[name]).map((name) => [name, a.values[name], b.values[name], true]);
  const follows = new Set(['archive', 'overwrite', 'checkpoint', 'trace', 'export', 'resume', 'notes']);
  const named = new Set(chosen.map(([name]) => 'config/' + name.replaceAll('-', '_')));
  const keys = [...new Set([...Object.keys(a.settings || {}), ...Object.keys(b.settings || {})])].sort();
  const others =
      keys.filter(
              (key) => settingOf(a, key) !== settingOf(b, key) && !named.has(key) && !follows.has(key.split('/')[1]) &&
                  !key.includes('device_notes') && key !== 'environment/device_memory_bytes' && key !== 'config/chosen_options')
          .map(
              (key) =>
                  [key.replace('config/plugin_options/', '')
                       .replace('config/chosen_options/', 'chosen: ')
                       .replace('config/', '')
                       .replace('environment/', ''),
                   settingOf(a, key) ?? '–', settingOf(b, key) ?? '–', false]);
  const axes = (row) => new Map(
      (own(row).run?.topology?.axes || []).map((axis) => [axis.name, axis.transport + ': ' + (axis.verified_path || '–')]));
  const [pathsA, pathsB] = [axes(a), axes(b)];
  const paths =
      [...new Set([...pathsA.keys(), ...pathsB.keys()])]
          .filter((name) => pathsA.get(name) !== pathsB.get(name))
          .map(
              (name) =>
                  ['verified path over ' + name, pathsA.get(name) ?? 'no such axis', pathsB.get(name) ?? 'no such axis', false]);
  return [...chosen, ...paths, ...others];
}
