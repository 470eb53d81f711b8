#!/bin/busybox sh
# The first process of the guest: brings up eth0 and rxe0, then runs what comes in at the control port.
/bin/busybox mkdir -p /bb
/bin/busybox --install -s /bb
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/bb LC_ALL=C HOME=/root PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
    insmod "$module" || echo "init: $module cannot be loaded"
done </modules/order
option() { sed -n "s/.*\<softnic\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
ulimit -l unlimited
# By its path: busybox has an `ip` of its own, which knows less and comes first.
/bin/ip link set lo up
if [ -n "$(option ip)" ]; then
    # Addresses are there at once: nobody else on the link could have them.
    echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
    echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_ra
    echo 0 >/proc/sys/net/ipv6/conf/eth0/router_solicitations
    /bin/ip link set eth0 mtu "$(option mtu)"
    /bin/ip link set eth0 up
    for address in $(option ip | tr , ' '); do
        case $address in
        *:*) /bin/ip address add "$address" dev eth0 nodad ;;
        *) /bin/ip address add "$address" dev eth0 ;;
        esac
    done
    rdma link add rxe0 type rxe netdev eth0 || echo "init: no rxe0"
fi
for port in /sys/class/virtio-ports/vport*; do
    [ "$(cat "$port/name")" = softnic.control ] && control=/dev/${port##*/}
done
echo "init: up at $(cut -d' ' -f1 /proc/uptime), control port $control"
python3 - "$control" <<'END'
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
buffer = b""
def read_more():
    """Until the host is connected a read gives nothing; when it has gone, so does this machine."""
    global buffer
    patience = 600 if not buffer else 0
    while not (more := os.read(fd, 65536)):
        patience -= 1
        if patience < 0:
            sys.exit("no host")
        time.sleep(0.1)
    buffer += more
while b"\n" not in buffer:
    read_more()
size, buffer = buffer.split(b"\n", 1)
while len(buffer) < int(size):
    read_more()
exec(compile(buffer, "agent.py", "exec"), {"__name__": "agent", "port": fd})
END
echo "init: the agent ended"
poweroff -f
