// Tables above the charts: files, verdicts, replays, connections, paths.

function cell(row, text, kind) {
  const made = element(kind === 'head' || kind === 'head number' ? 'th' : 'td', text);
  if (kind && kind !== 'head') made.className = kind.replace('head ', '');
  row.append(made);
  return made;
}

// A table of columns [title, cell text of a row, whether it is a number].
function fillTable(table, columns, rows, each) {
  const head = element('thead'), body = element('tbody'), titles = element('tr');
  for (const [title, , number] of columns) cell(titles, title, number ? 'head number' : 'head');
  head.append(titles);
  for (const row of rows) {
    const line = element('tr');
    for (const [, text, number, hot] of columns) {
      const value = text(row);
      const made = cell(line, value, number ? 'number' : '');
      if (String(value).length > 60) made.title = value;
      if (hot && value !== '' && value !== '0') made.classList.add('hot');
    }
    if (each) each(line, row);
    body.append(line);
  }
  table.replaceChildren(head, body);
}

const orEmpty = (n) => (n ? grouped(n) : '');

function showFiles() {
  fillTable(byId('files'), [
    ['file', (f) => f.name], ['kind', (f) => f.kind],
    ['begins', (f) => (Number(f.start) > 1e8 ? new Date(Number(f.start) * 1000).toISOString().replace('T', ' ').slice(0, 23) : `${Number(f.start)} s`)],
    ['duration', (f) => formatTime(f.duration), true], ['packets', (f) => grouped(f.packets), true],
    ['bytes', (f) => formatBytes(f.bytes) + (f.kind === 'trace' ? ' of payload' : ''), true],
    ['rate', (f) => (f.duration ? formatRate(f.bytes * 8e9 / f.duration) : ''), true],
    ['connections', (f) => grouped(f.connections), true], ['ICRC wrong', (f) => grouped(f.icrc_bad), true, true],
    ['', (f) => (f.fault ? `cut off: ${f.fault}` : f.cut ? 'only the first packets: see --packets' : ''), false, true],
  ], report.files);
  const names = report.files.map((f) => f.name.split('/').pop());
  document.title = `${names.join(', ')}: softnic report`;
  byId('subtitle').textContent = `made by softnic ${report.version} from ${names.join(', ')}`;
}

// A link that shows a packet in the views.
function packetLink(file, number) {
  const link = element('a', number, { href: `#${file}:${number}` });
  link.addEventListener('click', (event) => {
    event.preventDefault();
    showNumbered(file, number);
  });
  return link;
}

function showNumbered(file, number) {
  const i = packetNumbered(file, number);
  if (i < 0) return;
  selectPacket(i);
  history.replaceState(null, '', `#${file}:${number}`);
  byId('view').scrollIntoView();
}

function packetList(file, numbers, count) {
  const list = element('span', numbers.length > 1 ? 'packets ' : 'packet ');
  numbers.forEach((number, k) => list.append(k ? ', ' : '', packetLink(file, number)));
  if (count > numbers.length) list.append(` and ${grouped(count - numbers.length)} more`);
  return list;
}

function showVerdicts() {
  const box = byId('verdicts');
  const captures = report.files.some((f) => f.kind === 'capture');
  byId('verdict-section').hidden = !captures;
  byId('verdict-count').textContent = report.verdicts.length ? `${report.verdicts.length}` : '';
  if (!report.verdicts.length) box.append(element('div', 'Nothing in the captures looks wrong.', { class: 'verdict good' }));
  for (const verdict of report.verdicts) {
    const made = element('div', null, { class: 'verdict' });
    made.append(element('b', verdict.name), `${verdict.found} (`, packetList(verdict.file, verdict.packets, verdict.count), ')');
    const where = [];
    if (report.files.length > 1) where.push(report.files[verdict.file].name);
    if (verdict.connection !== null) where.push(report.connections[verdict.connection].ends.join(' ↔ '));
    if (where.length) made.append(element('p', where.join(', ')));
    made.append(element('p', verdict.advice));
    box.append(made);
  }
}

const SHOWN_DIFFERENCES = 200;

function showReplays() {
  byId('replay-section').hidden = !report.replays.length;
  for (const replay of report.replays) {
    const box = byId('replays');
    const of = replay.file === null ? '' : ` of ${report.files[replay.file].name}`;
    const words = { same: 'our NIC sends the same', differs: 'our NIC sends something else',
      cannot_replay: 'nothing could be replayed' };
    const good = replay.verdict === 'same' ? 'verdict good' : 'difference';
    const sum = element('div', null, { class: good });
    sum.append(element('b', words[replay.verdict] || replay.verdict), element('p', `${replay.name}${of}: ${replay.differences.length}`
      + ` differences, ${replay.allowed.length} allowed, ${replay.undetermined.length} undetermined in ${grouped(replay.packets)} packets`));
    box.append(sum);
    const row = (number, text, detail, kind) => {
      const made = element('div', null, { class: kind });
      made.append('packet ', replay.file === null ? String(number) : packetLink(replay.file, number), `: ${text}`);
      if (detail) made.append(element('p', detail));
      box.append(made);
    };
    const some = (list, each) => {
      list.slice(0, SHOWN_DIFFERENCES).forEach(each);
      if (list.length > SHOWN_DIFFERENCES) box.append(element('p', `and ${grouped(list.length - SHOWN_DIFFERENCES)} more`));
    };
    some(replay.differences, (d) => row(d.packet, `captured ${d.captured}; our NIC as the ${d.role} sends ${d.ours}`, d.why, 'difference'));
    some(replay.undetermined, (u) => row(u.packet, `undetermined: ${u.why}`, '', 'verdict'));
    some(replay.allowed, (a) => row(a.packet, `allowed: ${a.what}`, '', 'verdict good'));
  }
}

// Rows beyond these are found by the filter.
const SHOWN_CONNECTIONS = 500;

function showConnections() {
  const words = byId('connection-filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (c) => `${c.ends.join(' ')} ${c.transport} ${report.files[c.file].name}`.toLowerCase();
  const all = report.connections.map((connection, place) => ({ ...connection, place }));
  const found = all.filter((c) => words.every((word) => text(c).includes(word)));
  const files = report.files.length > 1 ? [['file', (c) => report.files[c.file].name.split('/').pop()]] : [];
  fillTable(byId('connections'), [
    ['connection', (c) => c.ends.join(' ↔ ')], ...files, ['transport', (c) => c.transport],
    ['packets', (c) => grouped(c.counts.packets), true], ['payload', (c) => formatBytes(c.counts.payload), true],
    ['goodput', (c) => (c.counts.duration ? formatRate(c.counts.payload * 8e9 / c.counts.duration) : ''), true],
    ['sent again', (c) => orEmpty(c.counts.again), true], ['lost', (c) => orEmpty(c.counts.lost), true, true],
    ['repaired', (c) => orEmpty(c.counts.repaired), true], ['NAK', (c) => orEmpty(c.counts.naks), true, true],
    ['RNR', (c) => orEmpty(c.counts.not_ready), true, true], ['CNP', (c) => orEmpty(c.counts.cnps), true],
    ['completions', (c) => orEmpty(c.counts.completions), true],
    ['round trip', (c) => (c.counts.median_round_trip === null ? '' : formatTime(c.counts.median_round_trip)), true],
    ['p99', (c) => (c.counts.p99_round_trip === null ? '' : formatTime(c.counts.p99_round_trip)), true],
  ], found.slice(0, SHOWN_CONNECTIONS), (line, connection) => {
    line.dataset.connection = connection.place;
    line.classList.toggle('selected', connection.place === view.connection);
    line.addEventListener('click', () => selectConnection(connection.place));
  });
  byId('connection-count').textContent = `${grouped(found.length)} of ${grouped(all.length)}`
    + (found.length > SHOWN_CONNECTIONS ? `, the first ${SHOWN_CONNECTIONS} shown` : '');
}

const SPACE_WORDS = ['requests of', 'requests of', 'answers to', 'answers to'];

function connectionChanged() {
  const connection = report.connections[view.connection];
  for (const line of document.querySelectorAll('#connections tbody tr')) {
    line.classList.toggle('selected', Number(line.dataset.connection) === view.connection);
  }
  const mtu = connection.mtu ? `, path MTU ${connection.mtu}` : '';
  byId('view-title').replaceChildren(connection.ends.join(' ↔ '), element('span', ` ${connection.transport}${mtu}`, { class: 'muted' }));
  const counts = spacesOf(view.connection);
  byId('space').replaceChildren(...counts.map((count, space) => [count, space]).filter(([count]) => count).map(([count, space]) =>
    new Option(`${SPACE_WORDS[space]} ${connection.ends[space & 1]} (${grouped(count)})`, space, false, space === view.space)));
  showPaths();
  sequenceChanged();
  chartsChanged();
}

// Paths of the connection: source, destination and UDP source port.
function showPaths() {
  const paths = new Map();
  for (const i of packetsOf.of(view.connection)) {
    let path = paths.get(packets.path[i]);
    if (!path) paths.set(packets.path[i], path = { place: packets.path[i], packets: 0, bytes: 0, again: 0, lost: 0, marked: 0, trips: 0, sum: 0 });
    path.packets++;
    if (packets.class[i] === DATA) path.bytes += packets.length[i];
    if (packets.flags[i] & AGAIN && packets.class[i] === DATA) path.again++;
    if (packets.flags[i] & LOST) path.lost++;
    if (packets.flags[i] & MARKED) path.marked++;
  }
  const all = [...paths.values()];
  fillTable(byId('paths'), [
    ['path', (p) => report.paths[p.place]], ['packets', (p) => grouped(p.packets), true],
    ['payload sent', (p) => formatBytes(p.bytes), true], ['sent again', (p) => orEmpty(p.again), true],
    ['lost', (p) => orEmpty(p.lost), true, true], ['marked CE', (p) => orEmpty(p.marked), true],
  ], all.slice(0, 64));
  byId('path').replaceChildren(new Option('all', -1), ...all.map((p) => new Option(`${report.paths[p.place]} (${grouped(p.packets)})`, p.place)));
}

function showLegend() {
  const used = new Set();
  for (let i = 0; i < kinds.length; i++) used.add(kinds[i]);
  byId('legend').replaceChildren(...KINDS.map((kind, k) => [kind, k]).filter(([, k]) => used.has(k)).map(([kind]) => {
    const made = element('a', null, { href: '#view', title: `next in the sequence of packets` });
    made.addEventListener('click', (event) => {
      event.preventDefault();
      byId('search').value = kind.word || kind.name;
      search(byId('search').value);
      step(1);
    });
    const name = kind.name === 'repaired' ? 'repair' : kind.name;
    made.append(element('i', kind.glyph || '■', { style: `color: var(--${name})` }), kind.label);
    return made;
  }));
}
