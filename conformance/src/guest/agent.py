"""The guest's side of the control port: every line that comes in is a command in JSON, every line that goes out is its answer.

Sent to the guest by the host, and run by its init with `port`, the file descriptor of the control port. Where the guest has rxe0,
verbs.py stands before this and has filled COMMANDS.
"""
import json
import os
import signal
import subprocess
import sys

COMMANDS = globals().get("COMMANDS", {})
# By their numbers: the program, and the file of what it prints.
programs = {}


def start(m):
    """Starts a program; what it prints, both ways, goes to a file."""
    number = m.get("number", 0)
    name = "/tmp/output%d" % number
    out = open(name, "wb")
    environment = dict(os.environ, **m.get("env", {}))
    child = subprocess.Popen(m["argv"], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, cwd="/tmp")
    programs[number] = (child, open(name, "rb"))


def output(m):
    """What the program has printed since the last call, and its exit status once it is done and all was read."""
    child, out = programs[m.get("number", 0)]
    status = child.poll()
    text = out.read(1 << 16)
    return {"text": text.decode("utf-8", "replace"), "status": None if text else status}


def stop(m):
    child = programs[m.get("number", 0)][0]
    child.kill()
    child.wait()


def signal_it(m):
    programs[m["number"]][0].send_signal(getattr(signal, m["name"]))


def listens(m):
    """Whether somebody waits at a TCP port. In these tables numbers are hexadecimal, and 0A is LISTEN."""
    for name in "/proc/net/tcp", "/proc/net/tcp6":
        for fields in map(str.split, open(name)):
            if fields[3] == "0A" and fields[1].endswith(":%04X" % m["port"]):
                return True
    return False


def cm_listens(m):
    """Whether the program that was started waits by the RDMA-CM; one that was killed may be there for a moment longer."""
    shown = subprocess.run(["rdma", "resource", "show", "cm_id"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    own = "pid %d" % programs[0][0].pid
    lines = shown.stdout.decode("utf-8", "replace").splitlines()
    return any("state LISTEN" in line and own in line.replace("  ", " ") for line in lines)


def kernel(m):
    return os.uname().release


def batch(m):
    """Several commands at once: the answers of all, or the first error."""
    return [COMMANDS[c["do"]](c) for c in m["commands"]]


COMMANDS.update(start=start, output=output, stop=stop, signal=signal_it, listens=listens, cm_listens=cm_listens, kernel=kernel, batch=batch)


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
        m = json.loads(line)
        say({"answer": COMMANDS[m["do"]](m)})
    except Exception as x:
        say({"error": repr(x)})
