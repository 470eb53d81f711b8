-- What softnic adds to RoCE: Selective Repeat, XP, LoWAR, negotiation of extensions, SDR too, authentication trailers.
-- Written by `softnic wireshark-plugin`. docs/wire-formats.md has every byte.

local softnic = Proto("softnic", "softnic extensions of RoCE")

local fields = {}
local list = {}

local function field(kind, name, label, ...)
  local made = ProtoField[kind]("softnic." .. name, label, ...)
  fields[name] = made
  list[#list + 1] = made
end

local OPERATIONS = {
  [0x00] = "SEND_FIRST",
  [0x01] = "SEND_MIDDLE",
  [0x02] = "SEND_LAST",
  [0x03] = "SEND_LAST_WITH_IMMEDIATE",
  [0x04] = "SEND_ONLY",
  [0x05] = "SEND_ONLY_WITH_IMMEDIATE",
  [0x06] = "RDMA_WRITE_FIRST",
  [0x07] = "RDMA_WRITE_MIDDLE",
  [0x08] = "RDMA_WRITE_LAST",
  [0x09] = "RDMA_WRITE_LAST_WITH_IMMEDIATE",
  [0x0a] = "RDMA_WRITE_ONLY",
  [0x0b] = "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
  [0x0c] = "RDMA_READ_REQUEST",
  [0x0d] = "RDMA_READ_RESPONSE_FIRST",
  [0x0e] = "RDMA_READ_RESPONSE_MIDDLE",
  [0x0f] = "RDMA_READ_RESPONSE_LAST",
  [0x10] = "RDMA_READ_RESPONSE_ONLY",
  [0x11] = "ACKNOWLEDGE",
  [0x12] = "ATOMIC_ACKNOWLEDGE",
  [0x13] = "COMPARE_SWAP",
  [0x14] = "FETCH_ADD",
  [0x16] = "SEND_LAST_WITH_INVALIDATE",
  [0x17] = "SEND_ONLY_WITH_INVALIDATE",
}

-- The extension headers of Selective Repeat behind the BTH, in their order.
local SR_HEADERS = {
  [0x00] = { "sr" }, [0x01] = { "sr" }, [0x02] = { "sr" }, [0x03] = { "sr", "imm" },
  [0x04] = { "sr" }, [0x05] = { "sr", "imm" }, [0x06] = { "reth" }, [0x07] = { "reth" },
  [0x08] = { "reth" }, [0x09] = { "sr", "reth", "imm" }, [0x0a] = { "reth" },
  [0x0b] = { "sr", "reth", "imm" }, [0x0c] = { "reth" }, [0x0d] = { "sr" }, [0x0e] = { "sr" },
  [0x0f] = { "sr" }, [0x10] = { "sr" }, [0x11] = { "sr", "aeth" },
  [0x12] = { "sr", "atomic_ack" }, [0x13] = { "atomic" }, [0x14] = { "atomic" },
  [0x16] = { "sr", "ieth" }, [0x17] = { "sr", "ieth" },
}

-- The same of XP, whose messages have packets of one opcode each.
local XP_HEADERS = {
  [0x04] = { "xp" },
  [0x05] = { "xp", "xp_imm" },
  [0x0a] = { "xp", "xp_reth" },
  [0x0b] = { "xp", "xp_reth", "xp_imm" },
  [0x0c] = { "xp", "xp_reth", "xp_time" },
  [0x10] = { "xp" },
  [0x11] = { "xp_feedback" },
}

local OPCODES = {}
for low, name in pairs(OPERATIONS) do
  OPCODES[0xc0 + low] = "SR_" .. name
end

local XP_OPCODES = {
  [0xe4] = "XP_SEND",
  [0xe5] = "XP_SEND_WITH_IMMEDIATE",
  [0xea] = "XP_RDMA_WRITE",
  [0xeb] = "XP_RDMA_WRITE_WITH_IMMEDIATE",
  [0xec] = "XP_RDMA_READ_REQUEST",
  [0xf0] = "XP_RDMA_READ_RESPONSE",
  [0xf1] = "XP_FEEDBACK",
}

field("uint8", "sr.opcode", "Opcode", base.HEX, OPCODES)
field("uint8", "sr.flags", "Flags", base.HEX)
field("bool", "sr.responses", "Acknowledges answers", 8, nil, 0x80)
field("bool", "sr.furthest", "Nothing came behind the bitmap", 8, nil, 0x40)
field("uint24", "sr.number", "Number", base.DEC)
field("uint32", "sr.offset", "Offset", base.DEC)
field("uint24", "sr.ack.expected", "Expected PSN", base.DEC)
field("uint24", "sr.ack.first", "PSN of the first bit", base.DEC)
field("uint32", "sr.ack.bits", "Bits", base.DEC)
field("uint32", "sr.ack.received", "Came too early", base.DEC)
field("uint32", "sr.ack.missing", "Missing PSN", base.DEC)
field("uint64", "sr.reth.va", "Virtual address", base.HEX)
field("uint32", "sr.reth.rkey", "R_Key", base.HEX)
field("uint32", "sr.reth.len", "Length from here on", base.DEC)
field("uint64", "sr.atomic.va", "Virtual address", base.HEX)
field("uint32", "sr.atomic.rkey", "R_Key", base.HEX)
field("uint64", "sr.atomic.swap_add", "Swap or add", base.DEC)
field("uint64", "sr.atomic.compare", "Compare", base.DEC)
field("uint8", "sr.aeth.syndrome", "Syndrome", base.HEX)
field("uint24", "sr.aeth.msn", "MSN", base.DEC)
field("uint64", "sr.atomic_ack", "Value before the atomic", base.DEC)
field("uint32", "sr.imm", "Immediate data", base.HEX)
field("uint32", "sr.ieth", "R_Key to invalidate", base.HEX)

field("uint8", "xp.opcode", "Opcode", base.HEX, XP_OPCODES)
field("bool", "xp.last", "Last fragment", 8, nil, 0x80)
field("bool", "xp.uses_receive", "Uses up a receive", 8, nil, 0x40)
field("uint24", "xp.wqe_seq", "Number of the message", base.DEC)
field("uint32", "xp.offset", "Offset", base.DEC)
field("uint32", "xp.length", "Length of the message", base.DEC)
field("uint16", "xp.stride", "Stride", base.DEC)
field("uint16", "xp.receive", "Number of the receive", base.DEC)
field("uint64", "xp.reth.va", "Virtual address", base.HEX)
field("uint32", "xp.reth.rkey", "R_Key", base.HEX)
field("uint32", "xp.reth.len", "Length", base.DEC)
field("uint32", "xp.imm", "Immediate data", base.HEX)
field("uint32", "xp.time_left_us", "Time left, in microseconds", base.DEC)
field("uint32", "xp.feedback.held_ns", "Held, in nanoseconds", base.DEC)
field("uint32", "xp.feedback.marks", "Marks of congestion so far", base.DEC)
field("uint64", "xp.feedback.bytes", "Bytes so far", base.DEC)
field("uint32", "xp.feedback.credit", "Credit", base.DEC)

field("uint8", "lowar.type", "Type", base.DEC, { [1] = "repair", [2] = "notice", [3] = "request" })
field("bool", "lowar.has_first", "The block begins its message", 8, nil, 0x80)
field("bool", "lowar.has_last", "The block ends its message", 8, nil, 0x40)
field("bool", "lowar.responses", "Answers with data", 8, nil, 0x20)
field("uint8", "lowar.isn", "Interleaving sequence number", base.DEC)
field("uint8", "lowar.r", "R: packets of a full block", base.DEC)
field("uint8", "lowar.c", "C: interleaving depth", base.DEC)
field("uint8", "lowar.n", "N: packets of this block", base.DEC)
field("uint16", "lowar.last_length", "Length of the last packet", base.DEC)
field("uint32", "lowar.digest", "Digest", base.HEX)

field("string", "negotiation.type", "Type")
field("uint16", "negotiation.status", "Status", base.HEX)
field("uint64", "negotiation.tid", "Transaction id", base.HEX)
field("uint8", "negotiation.version", "Format version", base.DEC)
field("uint24", "negotiation.sender_qpn", "Queue pair of the sender", base.HEX)
field("uint24", "negotiation.receiver_qpn", "Queue pair of the receiver", base.HEX)
field("uint32", "negotiation.extensions", "Extensions", base.HEX)
local EXTENSIONS = { "sr", "lowar", "xp", "sdr", "auth" }
for bit, name in ipairs(EXTENSIONS) do
  field("bool", "negotiation.extensions." .. name, name, 32, nil, 2 ^ (bit - 1))
end
field("uint8", "negotiation.lowar_r", "LoWAR: R", base.DEC)
field("uint8", "negotiation.lowar_c", "LoWAR: C", base.DEC)
field("uint32", "negotiation.sr_window", "Selective Repeat: window", base.DEC)
field("bytes", "negotiation.auth_nonce", "Authentication: nonce")
field("bytes", "negotiation.auth_mac", "Authentication: MAC")
field("uint8", "negotiation.sdr.parameters", "SDR: a setting of the scheme", base.DEC)
field("string", "negotiation.sdr.split", "SDR: bits of immediates: slot, packet, user")
field("uint32", "negotiation.sdr.mtu", "SDR: path MTU", base.DEC)
-- The rest of what is told of SDR, and where in a MAD.
local SDR = {
  { "scheme", 80, 1 }, { "generations", 112, 1 }, { "channels", 113, 1 }, { "slots", 116, 4 },
  { "max_message", 120, 8 }, { "token", 128, 4 }, { "control_qpn", 132, 4 }, { "control_psn", 136, 4 },
}
for _, part in ipairs(SDR) do
  field("uint" .. 8 * part[3], "negotiation.sdr." .. part[1], "SDR: " .. part[1], base.DEC)
end

field("uint64", "auth.epoch", "Epoch", base.DEC)
field("bytes", "auth.tag", "Tag")

softnic.fields = list

-- Numbers at places of these bytes, each with its length.
local function add_all(tree, prefix, bytes, parts)
  for _, part in ipairs(parts) do
    tree:add(fields[prefix .. part[1]], bytes(part[2], part[3]))
  end
end

local udp_header = Field.new("udp")
local udp_port = Field.new("udp.dstport")
local udp_length = Field.new("udp.length")

local BTH = 12
local ICRC = 4
local TRAILER = 24
local PSNS = 0x1000000
local MISSING_SHOWN = 32

-- By addresses and destination queue pair: from which frame on packets have a trailer, or have none any more.
local authenticated = {}

function softnic.init()
  authenticated = {}
end

local function has_trailer(pinfo, qpn)
  local changes = authenticated[tostring(pinfo.net_src) .. "|" .. tostring(pinfo.net_dst) .. "|" .. qpn]
  local has = false
  for _, change in ipairs(changes or {}) do
    if change.frame < pinfo.number then
      has = change.has
    end
  end
  return has
end

local function note(src, dst, qpn, frame, has)
  local key = tostring(src) .. "|" .. tostring(dst) .. "|" .. qpn
  authenticated[key] = authenticated[key] or {}
  table.insert(authenticated[key], { frame = frame, has = has })
end

-- The acknowledgement of Selective Repeat: what came and what did not, from the expected PSN on.
local function bitmap(tree, body, at, length, psn, sr)
  local first, bits = sr(1, 3):uint(), sr(4, 4):uint()
  tree:add(fields["sr.ack.expected"], body(9, 3))
  tree:add(fields["sr.ack.first"], sr(1, 3))
  tree:add(fields["sr.ack.bits"], sr(4, 4))
  if length ~= math.floor((bits + 7) / 8) or at + length > body:len() then
    return
  end
  local received, missing = 0, 0
  for i = 0, bits - 1 do
    local number = (first + i) % PSNS
    -- Of what lies before the expected PSN, the bitmap says nothing.
    if (number - psn) % PSNS < PSNS / 2 then
      local byte = body(at + math.floor(i / 8), 1)
      if byte:bitfield(7 - i % 8, 1) == 1 then
        received = received + 1
      else
        missing = missing + 1
        if missing <= MISSING_SHOWN then
          tree:add(fields["sr.ack.missing"], byte, number)
        end
      end
    end
  end
  tree:add(fields["sr.ack.received"], received)
end

-- Each takes the tree and the bytes of a header of its length.
local HEADERS = {
  sr = {
    8,
    function(tree, b)
      tree:add(fields["sr.flags"], b(0, 1))
      tree:add(fields["sr.responses"], b(0, 1))
      tree:add(fields["sr.furthest"], b(0, 1))
      tree:add(fields["sr.number"], b(1, 3))
      tree:add(fields["sr.offset"], b(4, 4))
    end,
  },
  reth = {
    16,
    function(tree, b)
      tree:add(fields["sr.reth.va"], b(0, 8))
      tree:add(fields["sr.reth.rkey"], b(8, 4))
      tree:add(fields["sr.reth.len"], b(12, 4))
    end,
  },
  atomic = {
    28,
    function(tree, b)
      tree:add(fields["sr.atomic.va"], b(0, 8))
      tree:add(fields["sr.atomic.rkey"], b(8, 4))
      tree:add(fields["sr.atomic.swap_add"], b(12, 8))
      tree:add(fields["sr.atomic.compare"], b(20, 8))
    end,
  },
  aeth = {
    4,
    function(tree, b)
      tree:add(fields["sr.aeth.syndrome"], b(0, 1))
      tree:add(fields["sr.aeth.msn"], b(1, 3))
    end,
  },
  atomic_ack = {
    8,
    function(tree, b)
      tree:add(fields["sr.atomic_ack"], b(0, 8))
    end,
  },
  imm = {
    4,
    function(tree, b)
      tree:add(fields["sr.imm"], b(0, 4))
    end,
  },
  ieth = {
    4,
    function(tree, b)
      tree:add(fields["sr.ieth"], b(0, 4))
    end,
  },
  xp = {
    16,
    function(tree, b)
      tree:add(fields["xp.last"], b(0, 1))
      tree:add(fields["xp.uses_receive"], b(0, 1))
      tree:add(fields["xp.wqe_seq"], b(1, 3))
      tree:add(fields["xp.offset"], b(4, 4))
      tree:add(fields["xp.length"], b(8, 4))
      tree:add(fields["xp.stride"], b(12, 2))
      -- Of a message that uses up none it is the last one's.
      if b(0, 1):bitfield(1, 1) == 1 then
        tree:add(fields["xp.receive"], b(14, 2))
      end
    end,
  },
  xp_reth = {
    16,
    function(tree, b)
      tree:add(fields["xp.reth.va"], b(0, 8))
      tree:add(fields["xp.reth.rkey"], b(8, 4))
      tree:add(fields["xp.reth.len"], b(12, 4))
    end,
  },
  xp_imm = {
    4,
    function(tree, b)
      tree:add(fields["xp.imm"], b(0, 4))
    end,
  },
  xp_time = {
    4,
    function(tree, b)
      tree:add(fields["xp.time_left_us"], b(0, 4))
    end,
  },
  xp_feedback = {
    20,
    function(tree, b)
      tree:add(fields["xp.feedback.held_ns"], b(0, 4))
      tree:add(fields["xp.feedback.marks"], b(4, 4))
      tree:add(fields["xp.feedback.bytes"], b(8, 8))
      tree:add(fields["xp.feedback.credit"], b(16, 4))
    end,
  },
}

-- Shows those of these headers that were captured whole; where they end, and the bytes of each by its name.
local function headers(tree, body, names)
  local at, shown = BTH, {}
  for _, name in ipairs(names) do
    local length, add = HEADERS[name][1], HEADERS[name][2]
    if at + length > body:len() then
      return nil, shown
    end
    shown[name] = body(at, length)
    add(tree, shown[name])
    at = at + length
  end
  return at, shown
end

-- The beginning of a line about a packet.
local function title(name, body)
  return name .. " qp 0x" .. tostring(body(5, 3):bytes()):lower() .. " psn " .. body(9, 3):uint()
end

-- `declared` is the length of the body by the length fields; `body` is what was captured of it.
local function selective_repeat(tree, pinfo, body, declared, opcode)
  local names = SR_HEADERS[opcode - 0xc0]
  if not names then
    return
  end
  local sub = tree:add(softnic, body, "softnic Selective Repeat: " .. OPCODES[opcode])
  sub:add(fields["sr.opcode"], body(0, 1))
  pinfo.cols.info = title(OPCODES[opcode], body)
  local at, shown = headers(sub, body, names)
  if at and opcode == 0xd1 then
    bitmap(sub, body, at, declared - at - body(1, 1):bitfield(2, 2), body(9, 3):uint(), shown.sr)
  end
end

local function best_effort(tree, pinfo, body, opcode)
  local names = XP_HEADERS[opcode - 0xe0]
  if not names then
    return
  end
  local sub = tree:add(softnic, body, "softnic XP: " .. XP_OPCODES[opcode])
  sub:add(fields["xp.opcode"], body(0, 1))
  local info = title(XP_OPCODES[opcode], body)
  local _, shown = headers(sub, body, names)
  local xp = shown.xp
  if xp then
    info = info .. " message " .. xp(1, 3):uint() .. " at " .. xp(4, 4):uint() .. " of " .. xp(8, 4):uint()
  end
  pinfo.cols.info = info
end

local function lowar(tree, pinfo, body)
  if body:len() < BTH + 12 then
    return
  end
  local b = body(BTH, 12)
  local kind = b(0, 1):uint()
  if kind < 1 or kind > 3 then
    return
  end
  local sub = tree:add(softnic, body, "softnic LoWAR")
  sub:add(fields["lowar.type"], b(0, 1))
  sub:add(fields["lowar.has_first"], b(1, 1))
  sub:add(fields["lowar.has_last"], b(1, 1))
  add_all(sub, "lowar.", b, {
    { "responses", 1, 1 }, { "isn", 2, 1 }, { "r", 3, 1 }, { "c", 4, 1 }, { "n", 5, 1 },
    { "last_length", 6, 2 }, { "digest", 8, 4 },
  })
  local names = { "repair", "notice", "request" }
  pinfo.cols.info = "LOWAR " .. names[kind] .. " of " .. b(5, 1):uint() .. " packets from psn " .. body(9, 3):uint()
end

-- A MAD of softnic's class, to QP1.
local function negotiation(tree, pinfo, body)
  local at = BTH + 8
  if body:len() < at + 256 or body(5, 3):uint() ~= 1 then
    return
  end
  local mad = body(at, 256)
  local method = mad(3, 1):uint()
  local ours = mad(0, 1):uint() == 1
    and mad(1, 1):uint() == 0x4e
    and mad(16, 2):uint() == 0x0010
    and mad(37, 3):uint() == 0x0e534e
  if not ours or (method ~= 0x01 and method ~= 0x81) or mad(40, 1):uint() == 0 then
    return
  end
  local answer = method == 0x81
  local sub = tree:add(softnic, mad, "softnic negotiation: " .. (answer and "answer" or "offer"))
  sub:add(fields["negotiation.type"], mad(3, 1), answer and "answer" or "offer")
  if answer then
    sub:add(fields["negotiation.status"], mad(4, 2))
  end
  add_all(sub, "negotiation.", mad, {
    { "tid", 8, 8 }, { "version", 40, 1 }, { "sender_qpn", 45, 3 }, { "receiver_qpn", 49, 3 },
    { "lowar_r", 56, 1 }, { "lowar_c", 57, 1 }, { "sr_window", 60, 4 },
  })
  local extensions = sub:add(fields["negotiation.extensions"], mad(52, 4))
  for _, name in ipairs(EXTENSIONS) do
    extensions:add(fields["negotiation.extensions." .. name], mad(52, 4))
  end
  local auth = mad(52, 4):bitfield(27, 1) == 1
  if auth then
    sub:add(fields["negotiation.auth_nonce"], mad(64, 16))
    sub:add(fields["negotiation.auth_mac"], mad(88, 16))
  end
  if mad(52, 4):bitfield(28, 1) == 1 then
    add_all(sub, "negotiation.sdr.", mad, { { "parameters", 81, 1 }, { "parameters", 82, 1 }, { "parameters", 83, 1 } })
    local split = mad(108, 1):uint() .. "+" .. mad(109, 1):uint() .. "+" .. mad(110, 1):uint()
    sub:add(fields["negotiation.sdr.split"], mad(108, 3), split)
    sub:add(fields["negotiation.sdr.mtu"], mad(105, 1), ({ 256, 512, 1024, 2048, 4096 })[mad(105, 1):uint()] or 0)
    add_all(sub, "negotiation.sdr.", mad, SDR)
  end
  pinfo.cols.info = "softnic negotiation: " .. (answer and "answer" or "offer")
  -- An answer decides whether the packets behind it have a trailer.
  if answer and not pinfo.visited then
    local has = auth and mad(4, 2):uint() == 0
    note(pinfo.net_src, pinfo.net_dst, mad(49, 3):uint(), pinfo.number, has)
    note(pinfo.net_dst, pinfo.net_src, mad(45, 3):uint(), pinfo.number, has)
  end
end

-- Runs behind Wireshark's own dissector of RoCE, which knows the BTH.
function softnic.dissector(tvb, pinfo, tree)
  local ports, headers, lengths = { udp_port() }, { udp_header() }, { udp_length() }
  -- The innermost one, of a packet in a tunnel.
  local last = #ports
  if last == 0 or ports[last].value ~= 4791 then
    return
  end
  local bth = headers[last].offset + 8
  local declared = lengths[last].value - 8 - ICRC
  local captured = math.min(tvb:len() - bth, declared)
  if captured < BTH then
    return
  end
  local qpn = tvb(bth + 5, 3):uint()
  if has_trailer(pinfo, qpn) and declared >= BTH + TRAILER then
    local at = declared - TRAILER
    -- The upper bits of an epoch are zero. A trailer that was cut off is there all the same.
    local whole = at + TRAILER <= captured
    if not whole or tvb(bth + at, 2):uint() == 0 then
      if whole then
        local sub = tree:add(softnic, tvb(bth + at, TRAILER), "softnic authentication trailer")
        sub:add(fields["auth.epoch"], tvb(bth + at, 8))
        sub:add(fields["auth.tag"], tvb(bth + at + 8, 16))
      end
      declared = at
      captured = math.min(captured, at)
    end
  end
  local body = tvb(bth, captured)
  local opcode = body(0, 1):uint()
  if opcode >= 0xc0 and opcode <= 0xdf then
    selective_repeat(tree, pinfo, body, declared, opcode)
  elseif opcode >= 0xe0 then
    best_effort(tree, pinfo, body, opcode)
  elseif opcode == 0x1f then
    lowar(tree, pinfo, body)
  elseif opcode == 0x64 then
    negotiation(tree, pinfo, body)
  end
end

register_postdissector(softnic)
