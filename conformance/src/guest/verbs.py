"""The guest's side of a scenario: makes queue pairs of rxe0 and does with them what it is told. Stands before agent.py."""
import socket
import time

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

MTUS = {256: e.IBV_MTU_256, 512: e.IBV_MTU_512, 1024: e.IBV_MTU_1024, 2048: e.IBV_MTU_2048, 4096: e.IBV_MTU_4096}
SERVICES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
ACCESS = {
    "local_write": e.IBV_ACCESS_LOCAL_WRITE,
    "remote_write": e.IBV_ACCESS_REMOTE_WRITE,
    "remote_read": e.IBV_ACCESS_REMOTE_READ,
    "remote_atomic": e.IBV_ACCESS_REMOTE_ATOMIC,
    "mw_bind": e.IBV_ACCESS_MW_BIND,
}
OPCODES = {
    "send": e.IBV_WR_SEND,
    "send_imm": e.IBV_WR_SEND_WITH_IMM,
    "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "compare_swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "fetch_add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
    "send_inv": e.IBV_WR_SEND_WITH_INV,
    "local_inv": e.IBV_WR_LOCAL_INV,
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
    """Queue pairs with one memory region, one pair of completion queues and, if asked for, one queue of receives for all."""

    def __init__(self, m):
        self.m = m
        self.service = SERVICES[m["service"]]
        self.cqs = [CQ(context, 1024), CQ(context, 1024)]
        self.mr = MR(pd, m["memory"], access(m["mr_access"]))
        self.srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=64, max_sge=1))) if m["srq"] else None
        cap = QPCap(max_send_wr=64, max_recv_wr=0 if self.srq else 64, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=self.service, scq=self.cqs[0], rcq=self.cqs[1], srq=self.srq, sq_sig_all=1, cap=cap)
        self.qps = [QP(pd, init) for _ in range(m["qps"])]
        self.gid = gid_index(m["ip"])
        self.ah, self.windows = None, {}

    def info(self):
        return {"qpns": [qp.qp_num for qp in self.qps], "rkey": self.mr.rkey, "addr": self.mr.buf}

    def connect(self, m):
        route = GlobalRoute(dgid=GID(str(m["gid"])), sgid_index=self.gid, hop_limit=64)
        path = AHAttr(gr=route, is_global=1, port_num=1)
        for qp, peer, psn in zip(self.qps, m["qpns"], m["psns"]):
            attr = QPAttr(port_num=1)
            attr.sq_psn = self.m["psn"]
            if self.service == e.IBV_QPT_UD:
                self.qkey = attr.qkey = m["qkey"]
                qp.to_rts(attr)
                self.ah = AH(pd, attr=path)
                self.peer = peer
                continue
            attr.path_mtu = MTUS[self.m["mtu"]]
            attr.dest_qp_num = peer
            attr.rq_psn = psn
            attr.ah_attr = path
            attr.qp_access_flags = access(self.m["qp_access"])
            attr.max_rd_atomic = attr.max_dest_rd_atomic = self.m["max_rd_atomic"]
            attr.min_rnr_timer = self.m["min_rnr_timer"]
            attr.timeout = self.m["timeout"]
            attr.retry_cnt = self.m["retry_cnt"]
            attr.rnr_retry = self.m["rnr_retry"]
            qp.to_rts(attr)

    def sge(self, m):
        return SGE(self.mr.buf + m["offset"], m["len"], self.mr.lkey)

    def recv(self, m):
        wr = RecvWR(wr_id=m["wr_id"], num_sge=1, sg=[self.sge(m)])
        if self.srq:
            self.srq.post_recv(wr)
        else:
            self.qps[m["qp"]].post_recv(wr)

    def send(self, m):
        opcode = m["opcode"]
        sg = None if opcode == "local_inv" else [self.sge(m)]
        wr = SendWR(wr_id=m["wr_id"], num_sge=1 if sg else 0, sg=sg, opcode=OPCODES[opcode], send_flags=e.IBV_SEND_SIGNALED)
        if "imm" in m:
            wr.imm_data = socket.htonl(m["imm"])  # pyverbs takes the bytes as they lie in memory
        if opcode in ("write", "write_imm", "read"):
            wr.set_wr_rdma(m["rkey"], m["remote_addr"])
        elif opcode == "compare_swap":
            wr.set_wr_atomic(m["rkey"], m["remote_addr"], m["compare"], m["swap"])
        elif opcode == "fetch_add":
            wr.set_wr_atomic(m["rkey"], m["remote_addr"], m["add"], 0)
        elif opcode in ("send_inv", "local_inv"):
            wr.imm_data = m["rkey"]  # the same place in memory, in the host's own order
        if self.ah:
            wr.set_wr_ud(self.ah, self.peer, self.qkey)
        self.qps[m["qp"]].post_send(wr)

    def bind(self, m):
        """A memory window of type 2 over part of the region; its key."""
        window = MW(pd, e.IBV_MW_TYPE_2)
        rights = access(m["access"]) | (e.IBV_ACCESS_ZERO_BASED if m["zero_based"] else 0)
        wr = SendWR(wr_id=m["wr_id"], opcode=e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED)
        wr.set_bind_wr(window, MWBindInfo(self.mr, self.mr.buf + m["offset"], m["len"], rights))
        self.qps[m["qp"]].post_send(wr)
        self.windows[wr.rkey] = window
        return wr.rkey

    def unbind(self, m):
        self.windows.pop(m["rkey"]).close()

    def poll(self, m):
        """Up to `count` completions of the send (0) or receive (1) queue, waiting `ms` for them."""
        cq, found, end = self.cqs[m["queue"]], [], time.monotonic() + m["ms"] / 1000
        while len(found) < m["count"]:
            n, completions = cq.poll(m["count"] - len(found))
            for c in completions:
                imm = socket.ntohl(c.imm_data) if c.wc_flags & e.IBV_WC_WITH_IMM else None
                gone = c.imm_data if c.wc_flags & e.IBV_WC_WITH_INV else None
                found.append({"wr_id": c.wr_id, "status": c.status, "opcode": c.opcode, "len": c.byte_len, "imm": imm,
                              "invalidated": gone, "src_qp": c.src_qp if self.ah and m["queue"] == 1 else None})
            if not n:
                if time.monotonic() >= end:
                    break
                time.sleep(0.001)
        return found

    def close(self):
        if self.ah:
            self.ah.close()
        for window in self.windows.values():
            window.close()
        for qp in self.qps:
            qp.close()
        if self.srq:
            self.srq.close()
        self.mr.close()
        for cq in self.cqs:
            cq.close()


end = None


def open_end(m):
    global end
    end = End(m)
    return end.info()


def fill(m):
    data = bytes.fromhex(m["hex"])
    return end.mr.write(data, len(data), m["offset"])


def read(m):
    return end.mr.read(m["len"], m["offset"]).hex() if m["len"] else ""


def close(m):
    global end
    old, end = end, None
    return old.close() if old else None


COMMANDS = {
    "open": open_end,
    "connect": lambda m: end.connect(m),
    "recv": lambda m: end.recv(m),
    "send": lambda m: end.send(m),
    "bind": lambda m: end.bind(m),
    "unbind": lambda m: end.unbind(m),
    "poll": lambda m: end.poll(m),
    "fill": fill,
    "read": read,
    "close": close,
}
