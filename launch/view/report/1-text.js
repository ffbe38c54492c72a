// Numbers and elements. Every other file uses these.
const data = JSON.parse(document.getElementById('data').textContent);

/** An element: `attributes` by name ("on..." are listeners), then its content. */
function el(tag, attributes, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on'))
      element.addEventListener(name.slice(2), value);
    else
      element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...content.flat().filter((part) => part !== undefined && part !== null && part !== ''));
  return element;
}

const byId = (id) => document.getElementById(id);
const known = (value) => typeof value === 'number' && Number.isFinite(value);
const sum = (values) => values.reduce((a, b) => a + b, 0);

/** Three significant digits with a prefix: "12.3 k". */
function si(value, unit = '') {
  if (!known(value)) return '–';
  const prefixes = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
  let scaled = Math.abs(value), n = 0;
  while (scaled >= 999.5 && n < prefixes.length - 1) {
    scaled /= 1000;
    ++n;
  }
  const text = scaled === 0                                  ? '0' :
      scaled >= 99.95 || Number.isInteger(scaled) && n === 0 ? scaled.toFixed(0) :
      scaled >= 9.995                                        ? scaled.toFixed(1) :
                                                               scaled.toFixed(2);
  return (value < 0 ? '−' : '') + text + (prefixes[n] || unit ? ' ' : '') + prefixes[n] + unit;
}

function bytes(value) {
  if (!known(value)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let scaled = value, n = 0;
  while (Math.abs(scaled) >= 1024 && n < units.length - 1) {
    scaled /= 1024;
    ++n;
  }
  return (n === 0 || Math.abs(scaled) >= 99.95 ? scaled.toFixed(0) : scaled.toFixed(1)) + ' ' + units[n];
}

/** Seconds for people. */
function time(seconds) {
  if (!known(seconds)) return '–';
  const a = Math.abs(seconds), sign = seconds < 0 ? '−' : '';
  if (a >= 100) return sign + a.toFixed(0) + ' s';
  if (a >= 10) return sign + a.toFixed(1) + ' s';
  if (a >= 1) return sign + a.toFixed(2) + ' s';
  if (a >= 0.1) return sign + (1e3 * a).toFixed(0) + ' ms';
  if (a >= 0.01) return sign + (1e3 * a).toFixed(1) + ' ms';
  if (a >= 0.0001) return sign + (1e3 * a).toFixed(2) + ' ms';
  return a === 0 ? '0' : sign + (1e6 * a).toFixed(1) + ' µs';
}

function percent(share, digits = 0) {
  if (!known(share)) return '–';
  const text = (100 * share).toFixed(digits);
  return (Number(text) === 0 ? text.replace('-', '') : text.replace('-', '−')) + '%';
}
const times = (ratio) => !known(ratio) ? '–' :
                                         (ratio >= 99.5     ? ratio.toFixed(0) :
                                              ratio >= 9.95 ? ratio.toFixed(1) :
                                                              ratio.toFixed(2)) +
        '×';
const signed = (text) => text.startsWith('−') || text === '0' ? text : '+' + text;

/** Sentences of a list: "a", "a and b", "a, b and c". */
function listed(parts) {
  return parts.length < 2 ? parts.join('') : parts.slice(0, -1).join(', ') + ' and ' + parts[parts.length - 1];
}

/** A table: `head` of {name, number}, `rows` of cells; the first cell of a row is its header. */
function table(caption, head, rows, attributes) {
  const cell = (value, n, tag) => el(tag, {class: head[n].number ? 'number' : null, scope: tag === 'th' ? 'row' : null}, value);
  // The caption stands outside of what scrolls, so that it is read whole beside a table that is wider than the screen.
  return el(
      'div', {}, caption ? el('p', {class: 'caption'}, caption) : '',
      el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption || 'table'},
         el('table', Object.assign({'aria-label': caption || null}, attributes),
            el('thead', {}, el('tr', {}, head.map((h) => el('th', {scope: 'col', class: h.number ? 'number' : null}, h.name)))),
            el('tbody', {}, rows.map((row) => el('tr', {}, row.map((value, n) => cell(value, n, n === 0 ? 'th' : 'td'))))))));
}

const empty = (text) => el('p', {class: 'empty'}, text);

// Rows.
const rows = data.rows;
const finished = (row) => row.status === 'finished';
const own = (row) => row.run === undefined ? rows[row.same_program_as] : row;
const choiceNames = Object.keys(rows[0].values);
/** Options in which rows differ. */
const varying = choiceNames.filter((name) => new Set(rows.map((row) => row.values[name])).size > 1);

/** "ranks 2, precision bf16": what tells a row from the others. */
function nameOf(row, withModel = true) {
  const names = choiceNames.filter((name) => name !== 'model' && varying.includes(name) && row.values[name] !== '-');
  const said = names.map(
      (name) => ['strategy', 'precision', 'transport', 'machine', 'label', 'device', 'optimizer', 'dataset'].includes(name) ?
          row.values[name] :
          name + ' ' + row.values[name]);
  const model = withModel && (varying.includes('model') || said.length === 0) ? [row.values.model] : [];
  return [...model, ...said].join(', ') || row.label;
}
const settingOf = (row, key) => (row.settings || {})[key] ?? data.settings[key];
const isPredicted = rows.some((row) => row.run && row.run.time && row.run.time.source === 'predicted');
