// What is looked at: a connection, a path, a numbering of PSNs, a span of time; and who draws when that changes.

const view = {
  connection: -1,
  path: -1,         // of report.paths; -1: all
  space: 0,
  from: 0, to: 1,   // nanoseconds
  begin: 0, end: 1, // of the connection
  rows: new Uint32Array(0), // its packets, in order of time
  selected: -1,     // a packet
  colours: {},
  dark: null,
};
const drawers = [];
let drawPending = false;

// Draws once, however much changes before the browser's next frame.
function redraw() {
  if (drawPending) return;
  drawPending = true;
  requestAnimationFrame(drawNow);
}

function drawNow() {
  drawPending = false;
  readColours();
  for (const draw of drawers) draw();
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['background', 'panel', 'border', 'text', 'muted', 'grid', 'accent', 'select', 'band', 'limit',
    'other', 'ack', 'sent', 'repair', 'again', 'cnp', 'lost', 'rnr', 'nak']) {
    view.colours[name] = style.getPropertyValue('--' + name).trim();
  }
  view.colours.repaired = view.colours.repair;
}
const kindColour = (kind) => view.colours[KINDS[kind].name];

function selectConnection(connection) {
  view.connection = connection;
  view.path = -1;
  view.selected = -1;
  view.space = busiestSpace(connection);
  takeRows();
  showWholeTime();
  connectionChanged();
  redraw();
}

function selectPath(path) {
  view.path = path;
  takeRows();
  sequenceChanged();
  chartsChanged();
  redraw();
}

function selectSpace(space) {
  view.space = space;
  chartsChanged();
  redraw();
}

function takeRows() {
  const all = packetsOf.of(view.connection);
  view.rows = view.path < 0 ? all : all.filter((i) => packets.path[i] === view.path);
}

// How many packets that carry or acknowledge data each numbering has.
function spacesOf(connection) {
  const counts = [0, 0, 0, 0];
  for (const i of packetsOf.of(connection)) if (packets.class[i] !== CNP) counts[packets.space[i]]++;
  return counts;
}

function busiestSpace(connection) {
  const counts = spacesOf(connection);
  return counts.indexOf(Math.max(...counts));
}

function showWholeTime() {
  const all = packetsOf.of(view.connection);
  view.begin = all.length ? packets.time[all[0]] : 0;
  view.end = all.length ? packets.time[all[all.length - 1]] : 1;
  for (let k = Math.max(0, all.length - 64); k < all.length; k++) view.end = Math.max(view.end, heard(all[k]));
  const margin = Math.max((view.end - view.begin) * 0.01, 500);
  view.begin -= margin;
  view.end += margin;
  setRange(view.begin, view.end);
}

const SHORTEST = 50; // nanoseconds

function setRange(from, to) {
  const whole = view.end - view.begin;
  const span = Math.min(Math.max(to - from, SHORTEST), whole);
  const middle = (from + to) / 2;
  view.from = Math.min(Math.max(to - from === span ? from : middle - span / 2, view.begin), view.end - span);
  view.to = view.from + span;
  rangeChanged();
  redraw();
}

// Zooms by a factor around a time that stays where it is.
function zoom(factor, around) {
  const at = around === undefined ? (view.from + view.to) / 2 : around;
  setRange(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

// Shows a packet in all views.
function selectPacket(i) {
  if (packets.connection[i] !== view.connection) selectConnection(packets.connection[i]);
  if (view.path >= 0 && packets.path[i] !== view.path) selectPath(-1);
  view.selected = i;
  const time = packets.time[i], span = view.to - view.from;
  if (time < view.from || time > view.to) setRange(time - span / 2, time + span / 2);
  scrollToPacket(i);
  redraw();
}

function rangeChanged() {
  const span = view.to - view.from;
  byId('range').textContent = `${formatTime(Math.max(view.from, 0), span)} to ${formatTime(view.to, span)}, ${formatTime(span)} in all`;
}

let tooltipOwner = null;
function showTooltip(owner, event, text) {
  const box = byId('tooltip');
  tooltipOwner = owner;
  box.textContent = text;
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 16 : event.clientX + 16;
  const top = Math.min(event.clientY + 14, innerHeight - height - 8);
  box.style.left = `${Math.max(left, 4)}px`;
  box.style.top = `${Math.max(top, 4)}px`;
}
function hideTooltip(owner) {
  if (tooltipOwner === owner) byId('tooltip').hidden = true;
}
