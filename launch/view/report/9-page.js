// The end of the page, and its beginning: everything is shown from here.
function quoted(word) {
  return /^[A-Za-z0-9_.,:=+/@%-]+$/.test(word) ? word : '\'' + word.replaceAll('\'', '\'\\\'\'') + '\'';
}

function showRepeat() {
  const section = byId('repeat');
  if (data.command.length)
    section.append(el('p', {}, 'This page was written by'), el('pre', {}, data.command.map(quoted).join(' ')));
  const archives = rows.filter((row) => row.run?.repeats?.length);
  if (!archives.length) return;
  section.append(
      el('p', {}, 'Each archive holds the whole configuration of its run. This trains a row again:'),
      el('pre', {},
         archives.slice(0, 12)
             .map(
                 (row) => '# ' + nameOf(row) + '\nconsist train --config ' + quoted(row.run.repeats[0].archive) +
                     ' --archive again.h5')
             .join('\n')));
  if (archives.length > 12) section.append(el('p', {class: 'muted'}, 'And so on for ' + (archives.length - 12) + ' more.'));
  const events = rows.flatMap(
      (row) => (row.run?.events || []).filter(([kind]) => kind !== 'advice').map(([kind, text]) => [nameOf(row), kind, text]));
  if (events.length)
    section.append(
        el('details', {}, el('summary', {}, 'Events of the runs'),
           table('', [{name: 'Row'}, {name: 'Kind'}, {name: 'Text'}], events.slice(0, 100))));
  const shared = Object.entries(data.settings)
                     .filter(([key]) => key.startsWith('config/'))
                     .map(([key, value]) => [key.replace('config/plugin_options/', '').replace('config/', ''), value]);
  if (shared.length)
    section.append(
        el('details', {}, el('summary', {}, 'Settings that all rows share'),
           table('', [{name: 'Setting'}, {name: 'Value'}], shared)));
  const machine = Object.entries(data.settings)
                      .filter(([key]) => key.startsWith('environment/'))
                      .map(([key, value]) => [key.replace('environment/', ''), value]);
  if (machine.length)
    section.append(
        el('details', {}, el('summary', {}, 'Machine and versions that all rows share'),
           table('', [{name: 'What'}, {name: 'Value'}], machine)));
}

function problems() {
  const found = rows.flatMap((row) => (row.run?.problems || []).map((text) => nameOf(row) + ': ' + text));
  if (found.length)
    byId('table').append(
        el('div', {class: 'mind'}, el('h3', {}, 'Not everything could be read'),
           el('ul', {}, found.map((text) => el('li', {}, text)))));
}

for (const section of document.querySelectorAll('main > section'))
  byId('sections').append(el('li', {}, el('a', {href: '#' + section.id}, section.querySelector('h2').textContent)));
for (const show
         of [showAnswer, showTable, showWhy, showLoss, showTraining, showSpeed, showMemory, showTimeline, showHardware, showPredicted,
             showRepeat, problems])
  show();
byId('origin').textContent = 'Consist ' + data.version +
    '. Figures are those of the archives; docs/metrics.md defines them, docs/report.md says how this page is made.';
document.documentElement.dataset.ready = 'yes';
