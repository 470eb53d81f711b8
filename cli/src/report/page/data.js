// The report's data: columns of numbers, unpacked into typed arrays, and an index of the packets of each connection.

// Bits of `flags` and numbers of classes, as cli/src/report/packet.rs has them.
const AGAIN = 1, LOST = 2, REPAIRED = 4, MISSING = 8, DAMAGED = 16, MARKED = 32, ACK_REQ = 64, ARRIVAL_ONLY = 128;
const DATA = 0, ACK = 1, NAK = 2, NOT_READY = 3, CNP = 4, REPAIR = 5, OTHER = 6;
const NOTE = 0, POSTED = 1, COMPLETED = 2, CONGESTION_WINDOW = 3, RATE = 4;

// How a packet is drawn: what became of it goes before what it is. A higher place is drawn above a lower one.
const KINDS = [
  { name: 'other', label: 'other' },
  { name: 'ack', label: 'ACK', glyph: '▬' },
  { name: 'sent', label: 'sent', word: 'first' },
  { name: 'repair', label: 'repair packet' },
  { name: 'again', label: 'sent again' },
  { name: 'cnp', label: 'CNP' },
  { name: 'repaired', label: 'lost, repaired by FEC', glyph: '□' },
  { name: 'lost', label: 'lost', glyph: '✕' },
  { name: 'rnr', label: 'RNR NAK', glyph: '▼' },
  { name: 'nak', label: 'NAK', glyph: '▼' },
];
const KIND_OF_CLASS = new Uint8Array([2, 1, 9, 8, 5, 3, 0]);
const CAUSES = ['', 'NAK', 'receiver not ready', 'selective ACK', 'implied NAK', 'timeout', 'copy', 'late'];

const BYTES = ['end', 'class', 'opcode', 'space', 'cause', 'hasTarget'];
const WIDE = ['time', 'number', 'value'];
const SIGNED = ['sequence'];

function arrayFor(name, count) {
  if (BYTES.includes(name)) return new Uint8Array(count);
  if (WIDE.includes(name)) return new Float64Array(count);
  return SIGNED.includes(name) ? new Int32Array(count) : new Uint32Array(count);
}

async function unpack(column, count) {
  const text = atob(column.data);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const out = arrayFor(column.name, count);
  let at = 0, last = 0;
  for (let i = 0; i < count; i++) {
    let byte = bytes[at++], number = byte & 127, scale = 128;
    while (byte > 127) {
      byte = bytes[at++];
      number += (byte & 127) * scale;
      scale *= 128;
    }
    const value = number % 2 ? -(number + 1) / 2 : number / 2;
    last = column.delta ? last + value : value;
    out[i] = last;
  }
  return out;
}

async function unpackTable(table) {
  const all = { count: table.count };
  await Promise.all(table.columns.map(async (column) => {
    all[column.name] = await unpack(column, table.count);
    column.data = '';
  }));
  return all;
}

// The rows of each connection, in order: those of connection c are order[starts[c] .. starts[c + 1]].
function indexBy(column, count, groups) {
  const starts = new Uint32Array(groups + 1);
  for (let i = 0; i < count; i++) starts[column[i] + 1]++;
  for (let g = 0; g < groups; g++) starts[g + 1] += starts[g];
  const places = starts.slice(), order = new Uint32Array(count);
  for (let i = 0; i < count; i++) order[places[column[i]]++] = i;
  return { starts, order, of: (g) => order.subarray(starts[g], starts[g + 1]) };
}

let report, packets, events, packetsOf, eventsOf, kinds;
let heardTimes;
let transits; // how long a packet takes, for each connection and end; 0 where that is not known

async function load() {
  report = JSON.parse(document.getElementById('report').textContent);
  packets = await unpackTable(report.packets);
  events = await unpackTable(report.events);
  packetsOf = indexBy(packets.connection, packets.count, report.connections.length);
  eventsOf = indexBy(events.connection, events.count, report.connections.length);
  kinds = new Uint8Array(packets.count);
  transits = new Float64Array(2 * report.connections.length);
  for (let i = 0; i < packets.count; i++) {
    const flags = packets.flags[i], way = 2 * packets.connection[i] + packets.end[i];
    if (packets.transit[i] && !transits[way]) transits[way] = packets.transit[i] - 1;
    kinds[i] = flags & LOST ? 7 : flags & REPAIRED ? 6 : flags & AGAIN && packets.class[i] === DATA ? 4
      : KIND_OF_CLASS[packets.class[i]];
  }
  heardTimes = new Float64Array(packets.count);
  for (let i = 0; i < packets.count; i++) heardTimes[i] = heardTime(i);
}

// When the end that a packet concerns knows of it: answers count from when they arrive, or would have.
function heardTime(i) {
  const kind = packets.class[i];
  const isAnswer = kind === DATA ? (packets.space[i] & 1) !== packets.end[i] : kind >= ACK && kind <= NOT_READY;
  if (!isAnswer) return packets.time[i];
  return packets.time[i] + (packets.transit[i] ? packets.transit[i] - 1 : transits[2 * packets.connection[i] + packets.end[i]]);
}
const heard = (i) => heardTimes[i];

// The packet with this number in its file, or the next behind it; -1 where there is none. One that is missing has the
// number of the next.
function packetNumbered(file, number) {
  let best = -1;
  for (let i = 0; i < packets.count; i++) {
    if (packets.number[i] < number || packets.flags[i] & MISSING) continue;
    if (report.connections[packets.connection[i]].file !== file) continue;
    if (best < 0 || packets.number[i] < packets.number[best]) best = i;
  }
  return best;
}

// The first place in rows, which are ordered by time, that is not before a time.
function firstFrom(rows, times, time) {
  let low = 0, high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[rows[middle]] < time) low = middle + 1; else high = middle;
  }
  return low;
}
