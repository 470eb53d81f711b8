// The charts: PSN, bytes in flight, throughput, round trips, completions.

// More points than this are drawn as pixels; fewer, with a shape for each kind.
const SHAPES = 6000;
// Kinds from this one on keep their shapes, unless even they are too many: repaired, lost, NAKs.
const RARE = 6;
// Packets that the mouse looks at.
const NEAR = 20000;

// What is worked out once for a connection and its requester, not at each drawing.
const derived = { completions: null, longestTransit: 0, limits: {}, traced: false };

const requester = () => view.space & 1;
const concerns = (i) => (packets.space[i] & 1) === requester() && packets.class[i] !== CNP;

function chartsChanged() {
  derived.longestTransit = 0;
  for (const i of view.rows) derived.longestTransit = Math.max(derived.longestTransit, packets.transit[i]);
  const own = Array.from(eventsOf.of(view.connection)).filter((e) => events.end[e] === requester());
  derived.limits = {
    window: own.filter((e) => events.kind[e] === CONGESTION_WINDOW),
    rate: own.filter((e) => events.kind[e] === RATE),
  };
  derived.completions = completions(own);
  byId('flight-note').textContent = derived.limits.window.length ? 'and congestion window' : '';
  byId('throughput-note').textContent = 'of payload: sent first, and sent again' + (derived.limits.rate.length
    ? '; rate of congestion control' : '');
  byId('completion-note').textContent = derived.traced ? 'of send work requests' : 'of messages, by their acknowledgements';
}

function completions(own) {
  const done = own.filter((e) => events.kind[e] === COMPLETED);
  derived.traced = done.length > 0;
  const times = [], sums = [];
  let sum = 0;
  const add = (time, count) => { sum += count; times.push(time); sums.push(sum); };
  if (derived.traced) done.forEach((e) => add(events.time[e], events.value[e]));
  else for (const i of view.rows) if (packets.completes[i] && concerns(i)) add(heard(i), packets.completes[i]);
  return { times: Float64Array.from(times), sums: Float64Array.from(sums) };
}

// --- PSN over time

function psnScale() {
  const { sequence: numbers } = packets;
  let low = Infinity, high = -Infinity;
  forPsns((i) => {
    if (numbers[i] < low) low = numbers[i];
    if (numbers[i] > high) high = numbers[i];
  });
  if (low > high) return null;
  const margin = Math.max((high - low) * 0.04, 1);
  const offset = report.connections[view.connection].bases[view.space];
  return { low: low - margin, high: high + margin, offset, label: (v) => psnAt(view.connection, view.space, Math.round(v)) };
}

function forPsns(each) {
  const [from, to] = visible(derived.longestTransit);
  const { rows, space } = view, { space: spaces, class: classes } = packets;
  for (let k = from; k < to; k++) {
    const i = rows[k];
    if (spaces[i] === space && classes[i] !== CNP && classes[i] !== OTHER) each(i);
  }
}

function drawPsns(plot) {
  const [from, to] = visible(derived.longestTransit);
  const layers = KINDS.map(() => []);
  if (to - from > SHAPES) {
    const cloud = new Cloud(plot, 2);
    forPsns((i) => {
      cloud.add(plot.x(heard(i)), plot.y(packets.sequence[i]), kinds[i]);
      if (kinds[i] >= RARE) layers[kinds[i]].push(i);
    });
    cloud.paint();
    if (layers.reduce((sum, layer) => sum + layer.length, 0) > SHAPES) return;
  } else {
    forPsns((i) => layers[kinds[i]].push(i));
  }
  const c = plot.context;
  layers.forEach((layer, kind) => {
    c.fillStyle = c.strokeStyle = kindColour(kind);
    c.lineWidth = 2;
    for (const i of layer) mark(c, Math.round(plot.x(heard(i))), Math.round(plot.y(packets.sequence[i])), kind);
  });
}

// A shape for each kind, so that colours are not all that tells them apart.
function mark(c, x, y, kind) {
  const name = KINDS[kind].name;
  if (name === 'lost') {
    c.beginPath();
    c.moveTo(x - 4, y - 4); c.lineTo(x + 4, y + 4);
    c.moveTo(x - 4, y + 4); c.lineTo(x + 4, y - 4);
    c.stroke();
  } else if (name === 'repaired') {
    c.strokeRect(x - 3.5, y - 3.5, 7, 7);
  } else if (name === 'nak' || name === 'rnr') {
    c.beginPath();
    c.moveTo(x, y + 4); c.lineTo(x - 5, y - 4); c.lineTo(x + 5, y - 4);
    c.fill();
  } else if (name === 'ack') {
    c.fillRect(x - 3, y - 1, 6, 2);
  } else {
    c.fillRect(x - 2, y - 2, 4, 4);
  }
}

function nearestPsn(plot, x, y) {
  const from = firstFrom(view.rows, packets.time, plot.timeAt(x - 8) - derived.longestTransit);
  const to = Math.min(firstFrom(view.rows, packets.time, plot.timeAt(x + 8)), from + NEAR);
  let best = -1, least = 12 * 12;
  for (let k = from; k < to; k++) {
    const i = view.rows[k];
    if (packets.space[i] !== view.space || packets.class[i] === CNP) continue;
    const dx = plot.x(heard(i)) - x, dy = plot.y(packets.sequence[i]) - y;
    if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = i; }
  }
  return best;
}

// --- Bytes in flight

// The least and the greatest value of each pixel column, and the last one, which holds until the next.
function columnsOf(plot, samples) {
  const count = Math.max(1, Math.ceil(plot.inner));
  const low = new Float64Array(count).fill(NaN), high = new Float64Array(count).fill(NaN);
  let last = 0, column = 0;
  const fill = (upto) => {
    for (; column < upto; column++) {
      if (Number.isNaN(high[column])) low[column] = high[column] = last;
    }
  };
  samples((time, value) => {
    if (time < view.from) { last = value; return; }
    const at = Math.min(count - 1, Math.floor((time - view.from) / (view.to - view.from) * count));
    if (at < column) return;
    fill(at);
    column = at;
    if (Number.isNaN(high[at])) low[at] = high[at] = last;
    low[at] = Math.min(low[at], value);
    high[at] = Math.max(high[at], value);
    last = value;
  });
  fill(count);
  return { low, high };
}

function flightSamples(each) {
  const before = firstFrom(view.rows, packets.time, view.from - derived.longestTransit);
  const to = firstFrom(view.rows, packets.time, view.to);
  // The last value before the time that is shown.
  for (let k = before - 1; k >= 0; k--) {
    if (concerns(view.rows[k])) { each(view.from - 1, packets.inFlight[view.rows[k]]); break; }
  }
  if (!derived.longestTransit) {
    for (let k = before; k < to; k++) {
      const i = view.rows[k];
      if (concerns(i)) each(packets.time[i], packets.inFlight[i]);
    }
    return;
  }
  const samples = view.rows.slice(before, to).filter(concerns).sort((a, b) => heard(a) - heard(b));
  for (const i of samples) each(heard(i), packets.inFlight[i]);
}

function limitSamples(list) {
  return (each) => { for (const e of list) if (events.time[e] <= view.to) each(events.time[e], events.value[e]); };
}

let flight = null;
function flightScale() {
  flight = columnsOf(flightPlot, flightSamples);
  let high = flight.high.reduce((a, b) => Math.max(a, b), 0);
  if (derived.limits.window.length) {
    const limit = columnsOf(flightPlot, limitSamples(derived.limits.window)).high.reduce((a, b) => Math.max(a, b), 0);
    if (limit < 8 * high) high = Math.max(high, limit);
  }
  return high > 0 ? { low: 0, high: high * 1.08, binary: true, label: formatBytes } : null;
}

function drawFlight(plot) {
  area(plot, flight, view.colours.sent);
  if (derived.limits.window.length) curve(plot, columnsOf(plot, limitSamples(derived.limits.window)), view.colours.limit);
}

function area(plot, columns, colour) {
  const c = plot.context, base = plot.y(plot.low);
  c.fillStyle = colour;
  c.globalAlpha = 0.35;
  for (let i = 0; i < columns.high.length; i++) {
    const y = plot.y(columns.high[i]);
    c.fillRect(MARGIN.left + i, y, 1, base - y);
  }
  c.globalAlpha = 1;
  curve(plot, columns, colour);
}

function curve(plot, columns, colour) {
  const c = plot.context;
  c.fillStyle = colour;
  let last = plot.y(columns.high[0]);
  for (let i = 0; i < columns.high.length; i++) {
    const top = plot.y(columns.high[i]), bottom = plot.y(columns.low[i]);
    const from = Math.min(top, last), to = Math.max(bottom, last);
    c.fillRect(MARGIN.left + i, Math.round(from) - 1, 1, Math.max(Math.round(to - from), 0) + 2);
    last = bottom;
  }
}

function atMouse(columns, plot, x, words) {
  const i = Math.floor(x - MARGIN.left);
  if (!columns || i < 0 || i >= columns.high.length) return null;
  return `${formatTime(plot.timeAt(x), view.to - view.from)}\n${words(columns.high[i], columns.low[i])}`;
}

// --- Throughput

// Times over which bytes are added up: at least so many pixels, and so many packets on average, that they do not flicker.
const BIN = 4, PACKETS_IN_BIN = 10;
let bins = null;
function throughputScale() {
  const [from, to] = visible();
  const wanted = Math.min(throughputPlot.inner / BIN, Math.max((to - from) / PACKETS_IN_BIN, 16));
  const count = Math.max(1, Math.floor(wanted)), width = (view.to - view.from) / count;
  bins = { width, all: new Float64Array(count), first: new Float64Array(count) };
  const { all, first } = bins, { rows, from: begin } = view, { time, length, flags, class: classes } = packets;
  for (let k = from; k < to; k++) {
    const i = rows[k];
    if (classes[i] !== DATA || !concerns(i) || flags[i] & MISSING) continue;
    const bin = Math.min(count - 1, Math.floor((time[i] - begin) / width));
    all[bin] += length[i];
    if (!(flags[i] & AGAIN)) first[bin] += length[i];
  }
  for (const series of [bins.all, bins.first]) series.forEach((bytes, b) => { series[b] = bytes * 8e9 / width; });
  const high = bins.all.reduce((a, b) => Math.max(a, b), 0);
  return high > 0 ? { low: 0, high: high * 1.08, label: formatRate } : null;
}

function drawThroughput(plot) {
  const c = plot.context, base = plot.y(0);
  const width = plot.inner / bins.all.length;
  [[bins.all, view.colours.again], [bins.first, view.colours.sent]].forEach(([series, colour]) => {
    c.fillStyle = colour;
    series.forEach((rate, b) => {
      if (rate <= 0) return;
      const left = Math.round(MARGIN.left + b * width), right = Math.round(MARGIN.left + (b + 1) * width);
      const y = Math.round(plot.y(rate));
      c.fillRect(left, y, right - left, base - y);
    });
  });
  if (derived.limits.rate.length) curve(plot, columnsOf(plot, limitSamples(derived.limits.rate)), view.colours.limit);
  drawNotifications(plot);
}

// CNPs to the sender, as ticks from above.
function drawNotifications(plot) {
  const [from, to] = visible();
  plot.context.fillStyle = view.colours.cnp;
  let last = -1;
  for (let k = from; k < to; k++) {
    const i = view.rows[k];
    if (packets.class[i] !== CNP || packets.end[i] === requester()) continue;
    const x = Math.round(plot.x(packets.time[i]));
    if (x !== last) plot.context.fillRect(x, MARGIN.top, 2, 9);
    last = x;
  }
}

function throughputAt(plot, x) {
  const b = Math.floor((x - MARGIN.left) / plot.inner * (bins ? bins.all.length : 0));
  if (!bins || b < 0 || b >= bins.all.length) return null;
  const again = bins.all[b] - bins.first[b];
  const note = again > 0 ? `\nsent again ${formatRate(again)}` : '';
  return `${formatTime(view.from + b * bins.width)}, over ${formatTime(bins.width)}\nsent first ${formatRate(bins.first[b])}${note}`;
}

// --- Round trips

function forTrips(each) {
  const [from, to] = visible(derived.longestTransit);
  for (let k = from; k < to; k++) {
    const i = view.rows[k];
    if (packets.roundTrip[i] && concerns(i)) each(i);
  }
}

function tripScale() {
  let high = 0;
  forTrips((i) => { high = Math.max(high, packets.roundTrip[i]); });
  return high ? { low: 0, high: high * 1.1, label: (v) => formatTime(v, high) } : null;
}

function drawTrips(plot) {
  const cloud = new Cloud(plot, 3);
  forTrips((i) => cloud.add(plot.x(heard(i)), plot.y(packets.roundTrip[i]), 2));
  cloud.paint();
}

function nearestTrip(plot, x, y) {
  const from = firstFrom(view.rows, packets.time, plot.timeAt(x - 8) - derived.longestTransit);
  const to = Math.min(firstFrom(view.rows, packets.time, plot.timeAt(x + 8)), from + NEAR);
  let best = -1, least = 144;
  for (let k = from; k < to; k++) {
    const i = view.rows[k];
    if (!packets.roundTrip[i] || !concerns(i)) continue;
    const dx = plot.x(heard(i)) - x, dy = plot.y(packets.roundTrip[i]) - y;
    if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = i; }
  }
  return best;
}

// --- Completions

function completionSamples(each) {
  const { times, sums } = derived.completions;
  for (let k = 0; k < times.length && times[k] <= view.to; k++) each(times[k], sums[k]);
}

let completed = null;
function completionScale() {
  const { sums } = derived.completions;
  if (!sums.length) return null;
  completed = columnsOf(completionPlot, completionSamples);
  const high = completed.high.reduce((a, b) => Math.max(a, b), 0), low = completed.low[0];
  return { low: low > high / 2 ? low : 0, high: Math.max(high * 1.05, low + 1), label: (v) => grouped(v) };
}

function drawCompletions(plot) {
  area(plot, completed, view.colours.sent);
}

let psnPlot, flightPlot, throughputPlot, tripPlot, completionPlot;
function makeCharts() {
  psnPlot = new Plot(byId('chart-psn'), { scale: psnScale, draw: drawPsns, nearest: nearestPsn });
  flightPlot = new Plot(byId('chart-flight'), {
    scale: flightScale, draw: drawFlight,
    nearest: (plot, x) => atMouse(flight, plot, x, (high) => `${formatBytes(high)} in flight`),
  });
  throughputPlot = new Plot(byId('chart-throughput'), { scale: throughputScale, draw: drawThroughput, nearest: throughputAt });
  tripPlot = new Plot(byId('chart-trips'), { scale: tripScale, draw: drawTrips, nearest: nearestTrip });
  completionPlot = new Plot(byId('chart-completions'), {
    scale: completionScale, draw: drawCompletions,
    nearest: (plot, x) => atMouse(completed, plot, x, (high) => `${grouped(high)} completed`),
  });
}
