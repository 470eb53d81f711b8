#!/usr/bin/env python3
"""The other end of `softnic perf` on a machine with a verbs device: a ConnectX, Linux Soft-RoCE, whatever pyverbs opens.

    perf_peer.py mlx5_0                       # serves `softnic perf OP --connect THIS_HOST --dev afxdp:IF` until Ctrl-C
    perf_peer.py mlx5_0 read_bw HOST          # the client of `softnic perf --server --dev afxdp:IF` at HOST

Needs Python 3.7 and pyverbs (package python3-pyverbs, from rdma-core). As the server it has write_bw, send_bw, read_bw, atomic_bw, read_lat
and atomic_lat, over rc, also with --verify. As the client it has write_bw, send_bw, read_bw and atomic_bw; with --verify one message at a
time, compared. Of messages below some 16K the client's rate is Python's, not the NIC's; the server has no such limit.
docs/connectx.md says how to use it with a ConnectX. The protocol is that of perf/src/control.rs: lines of JSON over TCP.
"""
import argparse
import ipaddress
import json
import os
import random
import select
import socket
import struct
import sys
import time

from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

VERSION = 1
SERVED = ("write_bw", "send_bw", "read_bw", "atomic_bw", "read_lat", "atomic_lat")
ATOMIC = ("read_bw", "atomic_bw", "read_lat", "atomic_lat")
# Of infiniband/verbs.h: where pyverbs keeps these names has changed, the numbers never do.
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
QPT_RC, WR_RDMA_WRITE, WR_SEND, WR_RDMA_READ, WR_FETCH_ADD, WC_SUCCESS = 2, 0, 2, 4, 6, 0
RECEIVES = 64  # that the server of send_bw has posted
ACCESS = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
RD_ATOMIC = 16  # READs and atomics that softnic perf has outstanding
ALL = (1 << 64) - 1


def pattern(size, qp, number):
    """The bytes of a message under --verify, as perf/src/pattern.rs has them."""
    word, words = ((number ^ qp << 40) + 1) * 0x9E3779B97F4A7C15 & ALL, []
    for _ in range((size + 7) // 8):
        word = (word * 6364136223846793005 + 1442695040888963407) & ALL
        words.append(word ^ word >> 29)
    return struct.pack("<%dQ" % len(words), *words)[:size]


def gids(device, port):
    """(index, address, interface) of each RoCEv2 GID."""
    folder = "/sys/class/infiniband/%s/ports/%d/" % (device, port)
    read = lambda name: open(folder + name).read().strip()
    for index in sorted(int(n) for n in os.listdir(folder + "gids")):
        try:
            if read("gid_attrs/types/%d" % index) == "RoCE v2":
                gid = ipaddress.IPv6Address(read("gids/%d" % index))
                yield index, gid.ipv4_mapped or gid, read("gid_attrs/ndevs/%d" % index)
        except OSError:  # an empty place in the table
            pass


class End:
    """Queue pairs with one memory region, laid out as softnic perf does it."""

    def __init__(self, options, plan, near, version=None):
        self.plan, self.options = plan, options
        self.depth = plan["depth"] if options.op else 1  # the server posts nothing
        self.context = Context(name=options.device)
        self.max_mtu = 128 << self.context.query_port(options.port).active_mtu
        if plan["op"] in ATOMIC and self.context.query_device().max_qp_rd_atom < RD_ATOMIC:
            raise ValueError("%s takes fewer than %d READs at a time" % (options.device, RD_ATOMIC))
        known = [g for g in gids(options.device, options.port) if version in (None, g[1].version)]
        # The one that was named; the address that the client came to; else IPv4 first, link-local last.
        known.sort(key=lambda g: (g[0] != options.gid, str(g[1]) != near, g[1].is_link_local, g[1].version))
        if not known or options.gid not in (None, known[0][0]):
            raise ValueError("%s has no such RoCEv2 GID of the peer's IP version: see ibv_devinfo -v" % options.device)
        self.gid, self.address, self.interface = known[0]
        self.slot = (max(plan["sizes"]) + 40 + 63) // 64 * 64
        self.slots = max(2, min(512, (32 << 20) // self.slot)) if plan["verify"] and plan["op"].endswith("_bw") else 1
        receives = RECEIVES if plan["op"] == "send_bw" and not options.op else 1
        self.slots = max(self.slots, receives)
        self.pd, self.cq = PD(self.context), CQ(self.context, plan["qps"] * (self.depth + receives) + 16)
        self.mr = MR(self.pd, plan["qps"] * 2 * self.slots * self.slot, ACCESS)
        cap = QPCap(max_send_wr=self.depth, max_recv_wr=receives, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        self.qps = [QP(self.pd, init) for _ in range(plan["qps"])]
        self.psns = [random.getrandbits(24) for _ in self.qps]

    def hello(self):
        mac = open("/sys/class/net/%s/address" % self.interface).read().strip()
        pairs = [{"qpn": qp.qp_num, "psn": psn} for qp, psn in zip(self.qps, self.psns)]
        return {"hello": {"version": VERSION, "plan": self.plan, "address": str(self.address), "max_mtu": self.max_mtu,
                          "mac": [int(b, 16) for b in mac.split(":")], "queue_pairs": pairs, "memory": self.mr.buf, "rkey": self.mr.rkey}}

    def connect(self, peer):
        self.peer, longest = peer, min(self.max_mtu, peer["max_mtu"])
        mtu = self.plan["mtu"] or longest
        if mtu > longest:
            raise ValueError("path MTU %d is more than the %d that both devices bear" % (mtu, longest))
        there = peer["address"] if ":" in peer["address"] else "::ffff:" + peer["address"]
        there = ipaddress.IPv6Address(there).exploded
        route = GlobalRoute(dgid=GID(there), sgid_index=self.gid, hop_limit=64, traffic_class=self.options.tclass)
        for qp, psn, theirs in zip(self.qps, self.psns, peer["queue_pairs"]):
            attr = QPAttr(port_num=self.options.port)
            attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=self.options.port)
            attr.path_mtu = mtu.bit_length() - 8
            attr.dest_qp_num, attr.rq_psn, attr.sq_psn = theirs["qpn"], theirs["psn"], psn
            attr.qp_access_flags = ACCESS
            attr.max_rd_atomic = attr.max_dest_rd_atomic = RD_ATOMIC
            attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = self.plan["timeout"], self.plan["retry"], 7, 12
            qp.to_rts(attr)
        print("%s gid %d %s, peer %s, rc, path mtu %d" % (self.options.device, self.gid, self.address, peer["address"], mtu), flush=True)

    def out_at(self, qp, number):
        return (qp * 2 * self.slots + number % self.slots) * self.slot

    def in_at(self, qp, number):
        return self.out_at(qp, number) + self.slots * self.slot

    def prepare(self, size):
        """Puts into memory what the client will find, or clears what it will change."""
        for qp in range(len(self.qps)):
            for slot in range(self.slots):
                if self.plan["op"].startswith("read"):
                    self.mr.write(pattern(size, qp, slot), size, self.out_at(qp, slot))
                else:
                    self.mr.write(bytes(size), size, self.in_at(qp, slot))

    def verify(self, size, sent):
        for qp, count in enumerate(sent):
            if self.plan["op"] == "write_bw":
                for n in range(max(0, count - self.slots), count):
                    if self.mr.read(size, self.in_at(qp, n)) != pattern(size, qp, n):
                        raise ValueError("message %d of queue pair %d is wrong" % (n, qp))
            elif self.plan["op"].startswith("atomic"):
                found = int.from_bytes(self.mr.read(8, self.in_at(qp, 0)), sys.byteorder)
                if found != count:
                    raise ValueError("%d atomics on queue pair %d added up to %d" % (count, qp, found))

    def post_receive(self, qp, number):
        sge = SGE(self.mr.buf + self.in_at(qp, number), self.slot, self.mr.lkey)
        self.qps[qp].post_recv(RecvWR(wr_id=qp, num_sge=1, sg=[sge]))

    def receive(self, size, control):
        """Takes in messages, and posts receives again, until the client says how many there were and all have come."""
        came, sent = [0] * len(self.qps), None
        while sent is None or came != sent:
            for c in self.completions():
                n, came[c.wr_id] = came[c.wr_id], came[c.wr_id] + 1
                if self.plan["verify"] and self.mr.read(size, self.in_at(c.wr_id, n)) != pattern(size, c.wr_id, n):
                    raise ValueError("message %d of queue pair %d is wrong" % (n, c.wr_id))
                self.post_receive(c.wr_id, n + RECEIVES)
            if sent is None and control.is_readable():
                sent = control.receive("done")[1]["sent"]
        return sent

    def completions(self):
        done = self.cq.poll(64)[1]
        for c in done:
            if c.status != WC_SUCCESS:
                raise ValueError("a work request failed: status %d, vendor error %#x" % (c.status, c.vendor_err))
        return done

    def request(self, q, number, size):
        """The work request of a message."""
        op = self.plan["op"]
        reads = op in ("read_bw", "atomic_bw")
        ours, theirs = (self.in_at(q, number), self.out_at(q, number)) if reads else (self.out_at(q, number), self.in_at(q, number))
        opcode = {"write_bw": WR_RDMA_WRITE, "send_bw": WR_SEND, "read_bw": WR_RDMA_READ, "atomic_bw": WR_FETCH_ADD}[op]
        wr = SendWR(wr_id=q, num_sge=1, sg=[SGE(self.mr.buf + ours, size, self.mr.lkey)], opcode=opcode)
        if op == "atomic_bw":  # all of a queue pair's add to one place
            wr.set_wr_atomic(self.peer["rkey"], self.peer["memory"] + self.in_at(q, 0), 1, 0)
        elif op != "send_bw":
            wr.set_wr_rdma(self.peer["rkey"], self.peer["memory"] + theirs)
        return wr

    def post_compared(self, size, count):
        """The same, one message at a time; what was written differs each time, and what was read is looked at."""
        op, start = self.plan["op"], time.perf_counter()
        for _ in range(count):
            for q in range(len(self.qps)):
                n = self.sent[q]
                if op in ("write_bw", "send_bw"):
                    self.mr.write(pattern(size, q, n), size, self.out_at(q, n))
                self.qps[q].post_send(self.request(q, n, size))
                self.sent[q] += 1
                while not self.completions():
                    pass
                found = self.mr.read(size, self.in_at(q, n))
                if op == "read_bw" and found != pattern(size, q, n % self.slots):
                    raise ValueError("what READ %d of queue pair %d brought is wrong" % (n, q))
                if op == "atomic_bw" and int.from_bytes(found, sys.byteorder) != n:
                    raise ValueError("atomic %d of queue pair %d found %r" % (n, q, found))
        return time.perf_counter() - start

    def post(self, size, count):
        """Posts so many messages, as many at a time as the depth allows, and waits for them; the seconds that took."""
        if self.plan["verify"]:
            return self.post_compared(size, count)
        requests = [self.request(q, 0, size) for q in range(len(self.qps))]
        start, left, room = time.perf_counter(), count, [self.depth] * len(self.qps)
        while count:
            for q, wr in enumerate(requests):
                while left and room[q]:
                    self.qps[q].post_send(wr)
                    left, room[q] = left - 1, room[q] - 1
                    self.sent[q] += 1
            for c in self.completions():
                room[c.wr_id] += 1
                count -= 1
        return time.perf_counter() - start

    def close(self):
        for thing in self.qps + [self.mr, self.cq, self.pd, self.context]:
            thing.close()


class Control:
    def __init__(self, stream):
        self.stream = stream
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        near = ipaddress.ip_address(stream.getsockname()[0].split("%")[0])
        self.near, self.lines = str(getattr(near, "ipv4_mapped", None) or near), stream.makefile("rw", encoding="utf-8")

    def is_readable(self):
        return bool(select.select([self.stream], [], [], 0)[0])

    def send(self, message):
        self.lines.write(json.dumps(message) + "\n")
        self.lines.flush()

    def receive(self, *wanted):
        """The next line, if it is one of those: its name and what it says."""
        line = self.lines.readline()
        if not line:
            raise ValueError("the peer closed the connection")
        message = json.loads(line)
        name, body = (message, None) if isinstance(message, str) else next(iter(message.items()))
        if name not in wanted:
            raise ValueError("the peer says: %s" % (body["reason"] if name == "failed" else line.strip()))
        if name == "hello" and body["version"] != VERSION:
            raise ValueError("the peer speaks version %d of this protocol, we %d" % (body["version"], VERSION))
        return name, body


def serve(control, options):
    peer = control.receive("hello")[1]
    plan = peer["plan"]
    if plan["op"] not in SERVED or plan["transport"] != "rc":
        raise ValueError("perf_peer.py serves %s over rc, not %s over %s" % (", ".join(SERVED), plan["op"], plan["transport"]))
    end = End(options, plan, control.near, ipaddress.ip_address(peer["address"]).version)
    try:
        end.connect(peer)
        control.send(end.hello())
        while True:
            name, go = control.receive("go", "bye")
            if name == "bye":
                return
            if plan["op"] == "send_bw":
                for number in range(RECEIVES):
                    for qp in range(plan["qps"]):
                        end.post_receive(qp, number)
                control.send("ready")
                sent = end.receive(go["size"], control)
            else:
                if plan["verify"]:
                    end.prepare(go["size"])
                control.send("ready")
                sent = control.receive("done")[1]["sent"]
            if plan["verify"]:
                end.verify(go["size"], sent)
            print("%s %d bytes: %d messages%s" % (plan["op"], go["size"], sum(sent), ", compared" if plan["verify"] else ""), flush=True)
            control.send({"outcome": {"received": max(0, sum(sent) - go["warm_up"]), "seconds": 0.0}})
    finally:
        end.close()


def ask(control, options):
    plan = {"op": options.op, "transport": "rc", "sizes": [options.size], "amount": {"iterations": options.iters}, "qps": options.qps,
            "mtu": options.mtu, "depth": options.depth, "timeout": options.timeout, "retry": 6, "verify": options.verify}
    end = End(options, plan, control.near)
    try:
        control.send(end.hello())
        end.connect(control.receive("hello")[1])
        warm_up, end.sent = max(1, min(100, options.iters // 10)), [0] * options.qps
        control.send({"go": {"size": options.size, "warm_up": warm_up}})
        control.receive("ready")
        end.post(options.size, warm_up)
        seconds = end.post(options.size, options.iters)
        control.send({"done": {"sent": end.sent}})
        control.receive("outcome")
        control.send("bye")
        rate = options.iters / seconds
        print("#bytes #iterations BW average[Gb/sec] MsgRate[Mpps]")
        print("%d %d %.3f %.6f" % (options.size, options.iters, rate * options.size * 8 / 1e9, rate / 1e6))
    finally:
        end.close()


def talk(stream, what, options):
    control = Control(stream)
    try:
        what(control, options)
    except Exception as x:  # pyverbs has errors of its own
        try:
            control.send({"failed": {"reason": str(x)}})
        except OSError:
            pass  # it may be gone already
        print("perf_peer.py: %s" % x, file=sys.stderr, flush=True)
        return 1
    finally:
        stream.close()
    return 0


def main():
    p = argparse.ArgumentParser(description="The other end of softnic perf, on a verbs device.")
    p.add_argument("device", help="as ibv_devices has it: mlx5_0")
    p.add_argument("op", nargs="?", choices=["write_bw", "send_bw", "read_bw", "atomic_bw"], help="be the client; without it, serve")
    p.add_argument("host", nargs="?", help="where softnic perf --server runs")
    p.add_argument("--port", type=int, default=1, help="port of the device [1]")
    p.add_argument("--gid", type=int, help="index of the GID [the address that the client came to, else the first that fits]")
    p.add_argument("--tclass", type=lambda s: int(s, 0), default=0, help="traffic class of what this end sends: DSCP * 4 [0]")
    p.add_argument("--tcp-port", type=int, default=18515, help="[18515]")
    for name, default in (("size", 65536), ("iters", 5000), ("qps", 1), ("depth", 128), ("timeout", 14), ("mtu", None)):
        p.add_argument("--" + name, type=int, default=default, help="client: as softnic perf has it [%s]" % (default or "the longest"))
    p.add_argument("--verify", action="store_true", help="client: one message at a time, compared")
    options = p.parse_intermixed_args()
    if options.op == "atomic_bw":
        options.size = 8
    if not os.path.exists("/sys/class/infiniband/" + options.device):
        p.error("there is no device %s, only: %s" % (options.device, " ".join(sorted(os.listdir("/sys/class/infiniband"))) or "none"))
    if options.op:
        if not options.host:
            p.error("say where softnic perf --server runs")
        return talk(socket.create_connection((options.host, options.tcp_port), 5), ask, options)
    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", options.tcp_port))
    listener.listen(1)
    for g in gids(options.device, options.port):
        print("%s gid %d %s (%s)" % ((options.device,) + g))
    print("waiting for clients at TCP port %d" % options.tcp_port, flush=True)
    while True:
        talk(listener.accept()[0], serve, options)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as x:
        sys.exit("perf_peer.py: %s" % x)
