// The sequence diagram: a lifeline for each end, an arrow for each packet, notes of the NICs beside them.

// Rows are packets and notes in the order of time, evenly spaced: times differ too much for a scale. A row is the place of
// a packet, or, negative, of an event: -1 - place.
const sequence = {
  rows: [],
  top: 0,           // the first row that is shown
  rowHeight: 19,    // pixels
  matches: [],      // rows
  query: '',
  hover: -1,
};
const ROW_HEIGHTS = [0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 7, 12, 15, 19, 24];
const LABELLED = 12; // rows of this height have text
const HEAD = 40;     // pixels above the rows
const LIFELINES = { time: 122, labels: 162 };

const rowTime = (row) => (row >= 0 ? packets.time[row] : events.time[-1 - row]);

function sequenceChanged() {
  const notes = [];
  for (const e of eventsOf.of(view.connection)) if (events.kind[e] === NOTE) notes.push(e);
  sequence.repeats = new Map();
  sequence.all = notes.length ? withNotes(notes) : view.rows;
  sequence.top = 0;
  search(sequence.query);
}

// Packets and notes in the order of time. A note that an end repeats, and does nothing else in between, is one row.
function withNotes(notes) {
  const rows = new Int32Array(view.rows.length + notes.length);
  const last = [-1, -1];
  let n = 0, at = 0;
  const add = (e) => {
    const before = last[events.end[e]];
    if (before >= 0 && events.text[before] === events.text[e]) {
      sequence.repeats.set(before, (sequence.repeats.get(before) || 1) + 1);
    } else {
      last[events.end[e]] = e;
      rows[at++] = -1 - e;
    }
  };
  for (const i of view.rows) {
    while (n < notes.length && events.time[notes[n]] <= packets.time[i]) add(notes[n++]);
    last[packets.end[i]] = -1;
    rows[at++] = i;
  }
  while (n < notes.length) add(notes[n++]);
  return rows.subarray(0, at);
}

function noteText(e) {
  const times = sequence.repeats.get(e);
  return report.texts[events.text[e]] + (times ? `, ${grouped(times)} times` : '');
}

const rowsShown = () => Math.max(1, (byId('sequence').clientHeight - HEAD) / sequence.rowHeight);

// The span of time that is shown; null where nothing is.
function sequenceSpan() {
  const { rows, top } = sequence;
  if (!rows || !rows.length) return null;
  const last = Math.min(rows.length - 1, Math.floor(top + rowsShown()));
  return [rowTime(rows[Math.min(Math.floor(top), rows.length - 1)]), rowTime(rows[Math.max(last, 0)])];
}

function scrollSequence(top) {
  sequence.top = Math.max(0, Math.min(top, sequence.rows.length - rowsShown() + 1));
  redraw();
}

function rowFrom(time) {
  let low = 0, high = sequence.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rowTime(sequence.rows[middle]) < time) low = middle + 1; else high = middle;
  }
  return low;
}

const scrollToTime = (time) => scrollSequence(rowFrom(time));

function scrollToPacket(i) {
  let row = rowFrom(packets.time[i]);
  while (row < sequence.rows.length && sequence.rows[row] !== i) row++;
  if (row >= sequence.rows.length) return;
  if (sequence.rowHeight < LABELLED) sequence.rowHeight = 19;
  const shown = rowsShown();
  if (row < sequence.top + 1 || row > sequence.top + shown - 2) scrollSequence(row - shown / 3);
}

function zoomRows(by) {
  const middle = sequence.top + rowsShown() / 2;
  const at = ROW_HEIGHTS.findIndex((h) => h >= sequence.rowHeight);
  sequence.rowHeight = ROW_HEIGHTS[Math.max(0, Math.min(ROW_HEIGHTS.length - 1, at + by))];
  scrollSequence(middle - rowsShown() / 2);
}

// --- Search

const WORDS = {
  lost: (i) => packets.flags[i] & LOST, again: (i) => packets.flags[i] & AGAIN && packets.class[i] === DATA,
  repaired: (i) => packets.flags[i] & REPAIRED, missing: (i) => packets.flags[i] & MISSING,
  damaged: (i) => packets.flags[i] & DAMAGED, ce: (i) => packets.flags[i] & MARKED, nak: (i) => packets.class[i] === NAK,
  rnr: (i) => packets.class[i] === NOT_READY, ack: (i) => packets.class[i] === ACK, cnp: (i) => packets.class[i] === CNP,
  repair: (i) => packets.class[i] === REPAIR, data: (i) => packets.class[i] === DATA,
  first: (i) => kinds[i] === 2, other: (i) => packets.class[i] === OTHER,
};

// Whether a row is what is searched for; null where nothing is.
function matcher(query) {
  const text = query.trim().toLowerCase();
  if (!text) return null;
  if (WORDS[text]) return (row) => row >= 0 && WORDS[text](row);
  const number = /^#?\d+$|^0x[0-9a-f]+$/.test(text) ? Number(text.replace('#', '')) : NaN;
  if (text.startsWith('#')) return (row) => row >= 0 && packets.number[row] === number;
  if (!Number.isNaN(number)) {
    return (row) => row >= 0 && packets.class[row] !== CNP && (psnOf(row) === number || packets.number[row] === number);
  }
  const opcodes = report.names.opcodes.map((name) => name.toLowerCase().includes(text.replace(/[ -]/g, '_')));
  const texts = report.texts.map((t) => t.toLowerCase().includes(text));
  return (row) => (row >= 0 ? opcodes[packets.opcode[row]] : texts[events.text[-1 - row]]);
}

function search(query) {
  sequence.query = query;
  const fits = matcher(query);
  const found = fits ? sequence.all.filter(fits) : [];
  const only = byId('only-matches').checked && fits;
  sequence.rows = only ? found : sequence.all;
  sequence.isMatch = fits || (() => false);
  sequence.matches = found;
  byId('matches').textContent = fits ? `${grouped(found.length)} found` : '';
  scrollSequence(only ? 0 : sequence.top);
}

// Goes to the next match behind the selected packet, or to the one before it.
function step(by) {
  const { matches } = sequence;
  if (!matches.length) return;
  const shown = sequence.rows[Math.floor(sequence.top)];
  const now = view.selected >= 0 ? packets.time[view.selected] : shown === undefined ? 0 : rowTime(shown) - 1;
  let at = view.selected >= 0 ? matches.indexOf(view.selected) : -1;
  if (at < 0) {
    at = matches.findIndex((row) => rowTime(row) > now);
    at = by > 0 ? (at < 0 ? 0 : at) : (at < 0 ? matches.length : at) - 1;
  } else {
    at += by;
  }
  const row = matches[(at + matches.length) % matches.length];
  if (row >= 0) selectPacket(row); else scrollToTime(events.time[-1 - row]);
}

// --- Drawing

function drawSequence() {
  const canvas = byId('sequence');
  const { context: c, width, height } = prepare(canvas);
  if (view.connection < 0 || width < 50) return;
  const lines = [LIFELINES.time + LIFELINES.labels, width - LIFELINES.labels];
  const ends = report.connections[view.connection].ends;
  const shown = rowsShown(), { rows, top, rowHeight } = sequence;
  c.save();
  c.beginPath();
  c.rect(0, HEAD, width, height - HEAD);
  c.clip();
  c.strokeStyle = view.colours.border;
  c.lineWidth = 2;
  for (const x of lines) { c.beginPath(); c.moveTo(x, HEAD); c.lineTo(x, height); c.stroke(); }
  const from = Math.floor(top), to = Math.min(rows.length, Math.ceil(top + shown));
  if (rowHeight >= LABELLED) for (let r = from; r < to; r++) highlight(c, width, r);
  if (rowHeight < 2) overview(c, lines, height, from, to);
  else for (let r = from; r < to; r++) drawRow(c, lines, r, HEAD + (r - top + 0.5) * rowHeight);
  c.restore();
  c.fillStyle = view.colours.text;
  c.font = '600 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  for (const end of [0, 1]) head(c, ends[end], lines[end], end, width);
  c.font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  if (!rows.length) {
    c.fillStyle = view.colours.muted;
    c.textAlign = 'center';
    c.fillText('no packets', width / 2, height / 2);
  }
  scrollbar(c, width, height, shown);
}

// The name of an end above its lifeline, in two lines.
function head(c, name, x, end, width) {
  const at = name.indexOf(' qp ');
  const parts = at < 0 ? [name] : [name.slice(0, at), name.slice(at + 1)];
  c.textAlign = 'center';
  parts.forEach((part, k) => {
    const half = c.measureText(part).width / 2 + 4;
    c.fillText(part, Math.max(half, Math.min(x, width - half - 8)), 12 + 15 * k);
  });
}

// The selected packet, and what was searched for.
function highlight(c, width, r) {
  const row = sequence.rows[r];
  if (row !== view.selected && !sequence.isMatch(row)) return;
  c.fillStyle = row === view.selected ? view.colours.select : view.colours.band;
  c.fillRect(0, HEAD + (r - sequence.top) * sequence.rowHeight, width, sequence.rowHeight);
}

function drawRow(c, lines, r, y) {
  const row = sequence.rows[r], hasText = sequence.rowHeight >= LABELLED;
  if (hasText) {
    c.textAlign = 'right';
    c.fillStyle = view.colours.muted;
    c.fillText(rowClock(r), LIFELINES.time - 8, y);
  }
  if (row < 0) return drawNote(c, lines, -1 - row, y, hasText);
  const end = packets.end[row], from = lines[end], to = lines[1 - end], colour = kindColour(kinds[row]);
  const forward = to > from ? 1 : -1;
  const endY = y + slope(row, r) * sequence.rowHeight;
  c.strokeStyle = c.fillStyle = colour;
  c.lineWidth = kinds[row] === 2 || kinds[row] === 1 ? 1.3 : 2;
  const isLost = packets.flags[row] & (LOST | REPAIRED);
  const stop = isLost ? from + (to - from) * 0.62 : to - forward * 2;
  const stopY = isLost ? y + (endY - y) * 0.62 : endY;
  if (packets.flags[row] & MISSING) c.setLineDash([4, 3]);
  c.beginPath();
  c.moveTo(from, y);
  c.lineTo(stop, stopY);
  c.stroke();
  c.setLineDash([]);
  if (isLost) mark(c, stop, stopY, kinds[row]);
  else if (sequence.rowHeight >= 4) arrowHead(c, stop, stopY, Math.atan2(stopY - y, stop - from));
  if (!hasText) return;
  c.textAlign = end === 0 ? 'right' : 'left';
  c.fillText(packetLabel(row), from - forward * 8, y, LIFELINES.labels - 12);
}

// How many rows lower an arrow ends: where its arrival stands among the rows, but not so far that arrows become lines downwards.
const STEEPEST = 3;
function slope(row, r) {
  if (!packets.transit[row]) return 0.3;
  return Math.max(0.3, Math.min(rowFrom(packets.time[row] + packets.transit[row] - 1) - r - 0.5, STEEPEST));
}

function arrowHead(c, x, y, angle) {
  const size = Math.min(7, sequence.rowHeight * 0.6);
  c.beginPath();
  c.moveTo(x, y);
  c.lineTo(x - size * Math.cos(angle - 0.42), y - size * Math.sin(angle - 0.42));
  c.lineTo(x - size * Math.cos(angle + 0.42), y - size * Math.sin(angle + 0.42));
  c.fill();
}

function drawNote(c, lines, e, y, hasText) {
  const end = events.end[e], x = lines[end];
  c.fillStyle = view.colours.limit;
  c.beginPath();
  c.arc(x, y, Math.min(4, sequence.rowHeight / 2), 0, 7);
  c.fill();
  if (!hasText) return;
  c.textAlign = end === 0 ? 'left' : 'right';
  c.fillText(noteText(e), x + (end === 0 ? 9 : -9), y, lines[1] - lines[0] - 18);
}

// The number of a packet and its time; where nothing happened for long, how long.
function rowClock(r) {
  const row = sequence.rows[r], time = rowTime(row);
  const number = row >= 0 && !(packets.flags[row] & MISSING) ? `#${packets.number[row]}   ` : '';
  return number + formatTime(time, Math.max(view.end - view.begin, 1e3) > 1e9 ? undefined : Math.max(time, 1e3));
}

// More rows than pixels: each pixel has the colour of the most important packet in it.
function overview(c, lines, height, from, to) {
  const { rows, top, rowHeight } = sequence;
  const worst = new Int8Array(Math.ceil(height - HEAD)).fill(-1);
  for (let r = from; r < to; r++) {
    const y = Math.floor((r - top) * rowHeight);
    if (rows[r] >= 0 && y >= 0 && y < worst.length && worst[y] < kinds[rows[r]]) worst[y] = kinds[rows[r]];
  }
  const left = lines[0] + 4, span = lines[1] - lines[0] - 8;
  worst.forEach((kind, y) => {
    if (kind < 0) return;
    c.fillStyle = kindColour(kind);
    c.fillRect(left, HEAD + y, kind <= 2 ? span * 0.5 : span, 1);
  });
  c.textAlign = 'right';
  c.fillStyle = view.colours.muted;
  for (let y = 10; y < height - HEAD; y += 40) {
    const r = Math.floor(top + y / rowHeight);
    if (r < to) c.fillText(rowClock(r), LIFELINES.time - 8, HEAD + y);
  }
}

function scrollbar(c, width, height, shown) {
  const count = sequence.rows.length;
  if (count <= shown) return;
  const track = height - HEAD, size = Math.max(18, track * shown / count);
  c.fillStyle = view.colours.border;
  c.fillRect(width - 6, HEAD + (track - size) * Math.min(1, sequence.top / (count - shown)), 5, size);
}

function makeSequence() {
  const canvas = byId('sequence');
  drawers.push(drawSequence);
  const rowAt = (event) => Math.floor(sequence.top + (event.offsetY - HEAD) / sequence.rowHeight);
  let drag = null;
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoomRows(event.deltaY < 0 ? 1 : -1);
    else scrollSequence(sequence.top + event.deltaY / Math.max(sequence.rowHeight, 0.05));
  }, { passive: false });
  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    drag = { y: event.offsetY, top: sequence.top, moved: false, bar: event.offsetX > canvas.clientWidth - 14 };
  });
  canvas.addEventListener('pointermove', (event) => {
    if (drag) {
      const by = event.offsetY - drag.y;
      drag.moved = drag.moved || Math.abs(by) > 3;
      const rows = drag.bar ? by * sequence.rows.length / (canvas.clientHeight - HEAD) : -by / sequence.rowHeight;
      if (drag.moved) scrollSequence(drag.top + rows);
      return hideTooltip(sequence);
    }
    const row = event.offsetY < HEAD ? undefined : sequence.rows[rowAt(event)];
    if (row === undefined) return hideTooltip(sequence);
    const text = row >= 0 ? packetDetails(row) : `${formatTime(rowTime(row))}\n${noteText(-1 - row)}`;
    showTooltip(sequence, event, text);
  });
  canvas.addEventListener('pointerup', (event) => {
    const row = sequence.rows[rowAt(event)];
    if (drag && !drag.moved && row >= 0) selectPacket(row);
    drag = null;
  });
  canvas.addEventListener('pointerleave', () => hideTooltip(sequence));
  canvas.addEventListener('keydown', (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: rowsShown() * 0.9, PageUp: -rowsShown() * 0.9,
      Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    scrollSequence(Math.max(-1, Math.min(sequence.rows.length, sequence.top + steps[event.key])));
  });
}
