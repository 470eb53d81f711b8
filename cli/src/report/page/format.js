// Numbers and packets in words, and small helpers of the page.

const byId = (id) => document.getElementById(id);

function element(name, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

const grouped = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, '\u202f');
const hex = (n, digits) => '0x' + n.toString(16).padStart(digits, '0');

// A time in nanoseconds, in the unit that suits `scale`.
function unitOf(scale) {
  return scale >= 1e9 ? [1e9, 's'] : scale >= 1e6 ? [1e6, 'ms'] : scale >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
}

function formatTime(ns, scale) {
  const [unit, name] = unitOf(Math.abs(scale === undefined ? ns : scale));
  const value = ns / unit;
  const digits = unit === 1 ? 0 : Math.abs(value) >= 1000 ? 1 : Math.abs(value) >= 100 ? 2 : 3;
  return `${value.toFixed(digits)} ${name}`;
}

function formatWith(value, units, base) {
  let i = 0;
  while (Math.abs(value) >= base && i < units.length - 1) { value /= base; i++; }
  return `${i === 0 ? Math.round(value) : value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)} ${units[i]}`;
}
const formatBytes = (n) => formatWith(n, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024);
const formatRate = (n) => formatWith(n, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s'], 1000);

// Round steps of an axis: 1, 2 or 5 times a power of ten, or of two where bytes are counted.
function stepFor(span, wanted, binary) {
  const rough = span / wanted;
  if (binary) return Math.pow(2, Math.ceil(Math.log2(Math.max(rough, 1))));
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  return [1, 2, 5, 10].map((f) => f * power).find((step) => step >= rough) || 10 * power;
}

const psnOf = (i) => psnAt(packets.connection[i], packets.space[i], packets.sequence[i]);
function psnAt(connection, space, sequence) {
  const psn = (report.connections[connection].bases[space] + sequence) % 0x1000000;
  return psn < 0 ? psn + 0x1000000 : psn;
}

const opcodeName = (i) => report.names.opcodes[packets.opcode[i]];
const shortName = (i) => opcodeName(i).replace(/^(RC|UC|UD|XRC|SR)_/, '').replace(/^RDMA_/, '')
  .replace('ACKNOWLEDGE', 'ACK').replace('WITH_IMMEDIATE', 'IMM').replace('READ_RESPONSE', 'RESPONSE');

function answerName(i) {
  const code = packets.syndrome[i] - 1;
  if (code < 0) return '';
  const kind = code >> 5, value = code & 31;
  if (kind === 3) return `NAK: ${report.names.naks[value]}`;
  return kind === 1 ? `RNR NAK, ${formatTime(report.names.rnr_micros[value] * 1e3)}` : '';
}

// The line of a packet in the sequence diagram.
function packetLabel(i) {
  if (packets.flags[i] & MISSING) return `${psnOf(i)} missing`;
  const kind = packets.class[i];
  if (kind === CNP) return 'CNP';
  if (kind === OTHER) return shortName(i);
  const name = { [NAK]: 'NAK', [NOT_READY]: 'RNR NAK', [REPAIR]: 'REPAIR' }[kind] || shortName(i);
  return `${name} ${psnOf(i)}`;
}

// All that is known of a packet.
function packetDetails(i) {
  const flags = packets.flags[i], connection = report.connections[packets.connection[i]];
  const lines = [];
  if (flags & MISSING) {
    lines.push(`PSN ${psnOf(i)} is not in the capture: the gap before packet ${packets.number[i]}`);
  } else {
    const what = report.files[connection.file].kind === 'trace' ? 'record' : 'packet';
    lines.push(`${what} ${packets.number[i]}: ${opcodeName(i)}`);
  }
  lines.push(`${formatTime(packets.time[i])}, ${connection.ends[packets.end[i]]} to ${connection.ends[1 - packets.end[i]]}`);
  const facts = packets.class[i] === CNP ? [] : [`PSN ${psnOf(i)} (${hex(psnOf(i), 6)})`];
  if (!(flags & MISSING)) facts.push(`${packets.length[i]} bytes of payload`);
  if (flags & ACK_REQ) facts.push('asks for an ACK');
  if (packets.msn[i]) facts.push(`MSN ${packets.msn[i]}`);
  lines.push(facts.join(', '));
  if (answerName(i)) lines.push(answerName(i));
  if (packets.hasTarget[i]) {
    const va = '0x' + (BigInt(packets.vaHigh[i]) * 0x100000000n + BigInt(packets.vaLow[i])).toString(16);
    lines.push(`address ${va}, rkey ${hex(packets.rkey[i], 8)}, ${packets.targetLength[i]} bytes`);
  }
  if (packets.transit[i]) lines.push(`arrived ${formatTime(packets.transit[i] - 1)} later`);
  if (flags & ARRIVAL_ONLY) lines.push('the time is that of its arrival');
  if (packets.roundTrip[i]) lines.push(`ends a round trip of ${formatTime(packets.roundTrip[i])}`);
  if (packets.completes[i]) lines.push(`completes ${packets.completes[i]} message${packets.completes[i] > 1 ? 's' : ''}`);
  const fate = [];
  if (flags & AGAIN && packets.class[i] === DATA) {
    fate.push(packets.cause[i] ? `sent again: ${CAUSES[packets.cause[i]]}` : 'sent again');
  }
  if (flags & LOST) fate.push('lost');
  if (flags & REPAIRED) fate.push('lost, repaired by FEC');
  if (flags & DAMAGED) fate.push('ICRC wrong');
  if (flags & MARKED) fate.push('marked: congestion experienced');
  if (fate.length) lines.push(fate.join(', '));
  lines.push(`path ${report.paths[packets.path[i]]}`);
  return lines.join('\n');
}
