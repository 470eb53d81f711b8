"""The guest's side of a scenario: makes queue pairs of rxe0 and does with them what it is told.

Every line that comes in at the control port is a command in JSON, every line that goes out is its answer. Sent to the
guest by the host, and run by its init with `port`, the file descriptor of the control port.
"""
import json
import os
import socket
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

MTUS = {256: e.IBV_MTU_256, 512: e.IBV_MTU_512, 1024: e.IBV_MTU_1024, 2048: e.IBV_MTU_2048, 4096: e.IBV_MTU_4096}
SERVICES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
ACCESS = {
    "local_write": e.IBV_ACCESS_LOCAL_WRITE,
    "remote_write": e.IBV_ACCESS_REMOTE_WRITE,
    "remote_read": e.IBV_ACCESS_REMOTE_READ,
    "remote_atomic": e.IBV_ACCESS_REMOTE_ATOMIC,
}
OPCODES = {
    "send": e.IBV_WR_SEND,
    "send_imm": e.IBV_WR_SEND_WITH_IMM,
    "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "compare_swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "fetch_add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}

context = Context(name="rxe0")
pd = PD(context)


def access(names):
    return sum(ACCESS[n] for n in names)


def gid_index(address):
    """The GID of an IPv4 address is the IPv6 address that stands for it."""
    v4 = ":" not in address
    wanted = socket.inet_pton(socket.AF_INET6, "::ffff:" + address if v4 else address)
    gids = [str(context.query_gid(1, i)) for i in range(8)]
    for i, gid in enumerate(gids):
        if socket.inet_pton(socket.AF_INET6, gid) == wanted:
            return i
    raise ValueError("rxe0 has no GID for %s, only %s" % (address, ", ".join(gids)))


class End:
    """One queue pair with its memory."""

    def __init__(self, m):
        self.m = m
        self.service = SERVICES[m["service"]]
        self.cqs = [CQ(context, 256), CQ(context, 256)]
        self.mr = MR(pd, m["memory"], access(m["mr_access"]))
        cap = QPCap(max_send_wr=64, max_recv_wr=64, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(pd, QPInitAttr(qp_type=self.service, scq=self.cqs[0], rcq=self.cqs[1], sq_sig_all=1, cap=cap))
        self.gid = gid_index(m["ip"])
        self.ah = None

    def info(self):
        return {"qpn": self.qp.qp_num, "rkey": self.mr.rkey, "addr": self.mr.buf}

    def connect(self, m):
        route = GlobalRoute(dgid=GID(str(m["gid"])), sgid_index=self.gid, hop_limit=64)
        path = AHAttr(gr=route, is_global=1, port_num=1)
        attr = QPAttr(port_num=1)
        attr.sq_psn = self.m["psn"]
        if self.service == e.IBV_QPT_UD:
            self.qkey = attr.qkey = m["qkey"]
            self.qp.to_rts(attr)
            self.ah = AH(pd, attr=path)
            self.peer = m["qpn"]
            return
        attr.path_mtu = MTUS[self.m["mtu"]]
        attr.dest_qp_num = m["qpn"]
        attr.rq_psn = m["psn"]
        attr.ah_attr = path
        attr.qp_access_flags = access(self.m["qp_access"])
        attr.max_rd_atomic = attr.max_dest_rd_atomic = self.m["max_rd_atomic"]
        attr.min_rnr_timer = self.m["min_rnr_timer"]
        attr.timeout = self.m["timeout"]
        attr.retry_cnt = self.m["retry_cnt"]
        attr.rnr_retry = self.m["rnr_retry"]
        self.qp.to_rts(attr)

    def sge(self, m):
        return SGE(self.mr.buf + m["offset"], m["len"], self.mr.lkey)

    def recv(self, m):
        self.qp.post_recv(RecvWR(wr_id=m["wr_id"], num_sge=1, sg=[self.sge(m)]))

    def send(self, m):
        wr = SendWR(wr_id=m["wr_id"], num_sge=1, sg=[self.sge(m)], opcode=OPCODES[m["opcode"]],
                    send_flags=e.IBV_SEND_SIGNALED)
        if "imm" in m:
            wr.imm_data = socket.htonl(m["imm"])  # pyverbs takes the bytes as they lie in memory
        if m["opcode"] in ("write", "write_imm", "read"):
            wr.set_wr_rdma(m["rkey"], m["remote_addr"])
        elif m["opcode"] == "compare_swap":
            wr.set_wr_atomic(m["rkey"], m["remote_addr"], m["compare"], m["swap"])
        elif m["opcode"] == "fetch_add":
            wr.set_wr_atomic(m["rkey"], m["remote_addr"], m["add"], 0)
        if self.ah:
            wr.set_wr_ud(self.ah, self.peer, self.qkey)
        self.qp.post_send(wr)

    def poll(self, m):
        """Up to `count` completions of the send (0) or receive (1) queue, waiting `ms` for them."""
        cq, found, end = self.cqs[m["queue"]], [], time.monotonic() + m["ms"] / 1000
        while len(found) < m["count"]:
            n, completions = cq.poll(m["count"] - len(found))
            for c in completions:
                imm = socket.ntohl(c.imm_data) if c.wc_flags & e.IBV_WC_WITH_IMM else None
                found.append({"wr_id": c.wr_id, "status": c.status, "opcode": c.opcode, "len": c.byte_len, "imm": imm,
                              "src_qp": c.src_qp if self.ah and m["queue"] == 1 else None})
            if not n:
                if time.monotonic() >= end:
                    break
                time.sleep(0.001)
        return found

    def close(self):
        if self.ah:
            self.ah.close()
        self.qp.close()
        self.mr.close()
        for cq in self.cqs:
            cq.close()


end = None


def command(m):
    global end
    what = m["do"]
    if what == "open":
        end = End(m)
        return end.info()
    if what == "connect":
        return end.connect(m)
    if what == "recv":
        return end.recv(m)
    if what == "send":
        return end.send(m)
    if what == "poll":
        return end.poll(m)
    if what == "fill":
        data = bytes.fromhex(m["hex"])
        return end.mr.write(data, len(data), m["offset"])
    if what == "read":
        return end.mr.read(m["len"], m["offset"]).hex() if m["len"] else ""
    if what == "state":
        return end.qp.query(e.IBV_QP_STATE)[0].qp_state
    if what == "close":
        old, end = end, None
        return old.close() if old else None
    if what == "kernel":
        return os.uname().release
    raise ValueError("no command is called " + what)


def say(answer):
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(port, data):]


say({"answer": "ready"})
buffer = b""
while True:
    while b"\n" not in buffer:
        more = os.read(port, 1 << 18)
        if not more:
            sys.exit("the host has gone")
        buffer += more
    line, buffer = buffer.split(b"\n", 1)
    try:
        say({"answer": command(json.loads(line))})
    except Exception as x:
        say({"error": repr(x)})
