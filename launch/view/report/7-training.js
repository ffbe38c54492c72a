// What training did besides its loss: evaluations, norms of gradients, learning rates, samples of text.

const evaluationsOf = (row) => row.run.curves.evaluations || [];

/** The course of evaluations as lines, where there is more than one, and the last of each row as numbers. */
function evaluationContent(shown) {
  const evaluated = shown.filter((row) => evaluationsOf(row).length);
  if (!evaluated.length) return [el('p', {class: 'muted'}, 'No shown row was evaluated: --evaluate-every says when a run is.')];
  const course = (row) => evaluationsOf(row).map(([step, loss]) => ({x: step, y: loss}));
  const short = (loss) => known(loss) ? loss.toFixed(4) : '–';
  const curves = () =>
      [curveLegend(evaluated),
       lines(
           200,
           'Loss of evaluations: ' + evaluated.map((row) => nameOf(row) + ' ends at ' + short(course(row).at(-1).y)).join('; '),
           'Mean loss over the evaluation part of the data, in ' + lossUnits(evaluated) + '.', evaluated, 'loss', {draw: course, format: short})];
  return [
    evaluated.some((row) => evaluationsOf(row).length > 1) ? curves() : [],
    table(
        'The last evaluation',
        [{name: 'Row'}, {name: 'After step', number: true}, {name: 'Loss', number: true}, {name: 'Sequences', number: true}],
        evaluated.map((row) => {
          const [step, loss, sequences] = evaluationsOf(row).at(-1);
          return [nameOf(row), String(step), short(loss), String(sequences)];
        }))
  ];
}

function columnContent(shown, name, title, caption, format) {
  const having = shown.filter((row) => columnOf(row, name).length);
  if (!having.length) return [];
  return [el('h3', {}, title), curveLegend(having), lines(170, title, caption + strideText(having), having, name, {format})];
}

/** The last texts that a run wrote. */
function sampleContent(shown) {
  const having = shown.filter((row) => (row.run.samples || []).length);
  if (!having.length)
    return [
      el('h3', {}, 'Samples of text'), el('p', {class: 'muted'}, 'No shown row wrote one: --sample-every says when a run does.')
    ];
  return [
    el('h3', {}, 'Samples of text'), el('p', {class: 'muted'}, 'The newest that each run wrote (--sample-every).'),
    ...having.map(
        (row) => el(
            'details', {open: having.length === 1}, el('summary', {}, nameOf(row)),
            row.run.samples.flatMap(
                (sample) =>
                    [el('p', {class: 'muted small'}, 'after step ' + sample.step), el('pre', {class: 'sample'}, sample.text)])))
  ];
}

function showTraining() {
  const short = (v) => v === 0                 ? '0' :
      Math.abs(v) < 1e-3 || Math.abs(v) >= 1e5 ? v.toExponential(2) :
                                                 String(Number(v.toPrecision(4)));
  showCurves(
      'training', 'nothing was trained',
      (shown) =>
          [el('h3', {}, 'Evaluations'), evaluationContent(shown),
           columnContent(shown, 'grad_norm', 'Gradient norm', 'Norm of all gradients of each step, before clipping.', short),
           columnContent(shown, 'learning_rate', 'Learning rate', 'Learning rate of each step.', short), sampleContent(shown)]);
}
