"""Machines that are not there: network namespaces with an address each, joined by links of a given rate (veth and tbf) or by a relay in user space that also
delays (a TUN device each). Needs root. Nothing outside the namespaces is touched."""
import contextlib
import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def sh(*words):
    subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True)


class Machines:
    """`count` namespaces; machine i has the address 10.88.0.(i + 1) on `interface`."""
    interface = "eth0"

    def __init__(self, count):
        self.names = [f"rl{os.getpid()}-{i}" for i in range(count)]

    def address(self, i):
        return f"10.88.0.{i + 1}"

    def words(self, i):
        """What stands before a command that runs on machine i."""
        return ["ip", "netns", "exec", self.names[i]]

    def add(self, name):
        sh("ip", "netns", "add", name)
        sh("ip", "-n", name, "link", "set", "lo", "up")

    def close(self):
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                sh("ip", "netns", "del", name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class LimitedLinks(Machines):
    """A bridge in a namespace of its own; every machine sends at most at the given rate."""

    def __init__(self, count):
        super().__init__(count)
        self.switch = f"rl{os.getpid()}-sw"
        self.names.append(self.switch)
        try:
            for name in self.names:
                self.add(name)
            sh("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
            sh("ip", "-n", self.switch, "link", "set", "br0", "up")
            for i in range(count):
                name = self.names[i]
                sh("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{i}", "netns", self.switch)
                sh("ip", "-n", name, "addr", "add", self.address(i) + "/24", "dev", "eth0")
                sh("ip", "-n", name, "link", "set", "eth0", "up")
                sh("ip", "-n", self.switch, "link", "set", f"p{i}", "master", "br0")
                sh("ip", "-n", self.switch, "link", "set", f"p{i}", "up")
        except BaseException:
            self.close()
            raise
        self.count = count

    def limit(self, bits_per_second, delay=0.0):
        assert delay == 0, "these links only limit the rate"
        burst = max(32768, int(bits_per_second / 8 / 250 * 1.5))  # a timer's tick at 250 a second
        for name in self.names[:self.count]:
            sh("ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{int(bits_per_second)}bit", "burst", burst,
               "latency", "200ms")

    def cut(self, i):
        sh("ip", "-n", self.switch, "link", "set", f"p{i}", "down")


class Relay(Machines):
    """Packets go through this process: each machine's leave one after another at the rate, and arrive `delay` seconds later."""
    interface = "tun0"

    def __init__(self, count, mtu=32000):
        super().__init__(count)
        self.fds, self.rate, self.delay, self.open = [], 1e12, 0.0, True
        libc = ctypes.CDLL(None, use_errno=True)
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            for i, name in enumerate(self.names):
                self.add(name)
                there = os.open(f"/run/netns/{name}", os.O_RDONLY)
                if libc.setns(there, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
                fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", b"tun0", IFF_TUN | IFF_NO_PI))
                libc.setns(home, CLONE_NEWNET)
                os.close(there)
                self.fds.append(fd)
                sh("ip", "-n", name, "addr", "add", self.address(i) + "/24", "dev", "tun0")
                sh("ip", "-n", name, "link", "set", "tun0", "mtu", mtu, "up")
        except BaseException:
            libc.setns(home, CLONE_NEWNET)
            self.close()
            raise
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def limit(self, bits_per_second, delay=0.0):
        self.rate, self.delay = bits_per_second / 8, delay

    def run(self):
        free_at, waiting, number = [0.0] * len(self.fds), [], 0
        poll = select.epoll()
        place = {fd: i for i, fd in enumerate(self.fds)}
        for fd in self.fds:
            poll.register(fd, select.EPOLLIN)
        while self.open:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, to, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):
                    os.write(self.fds[to], packet)
            timeout = max(0.0, min(0.1, waiting[0][0] - now)) if waiting else 0.1
            for fd, _ in poll.poll(timeout if timeout > 5e-5 else 0):
                i = place[fd]
                for _ in range(16):
                    try:
                        packet = os.read(fd, 65536)
                    except BlockingIOError:
                        break
                    if len(packet) < 20 or packet[0] >> 4 != 4:
                        continue
                    to = packet[19] - 1
                    if 0 <= to < len(self.fds):
                        free_at[i] = max(free_at[i], time.monotonic()) + len(packet) / self.rate
                        number += 1
                        heapq.heappush(waiting, (free_at[i] + self.delay, number, to, packet))

    def close(self):
        self.open = False
        if hasattr(self, "thread"):
            self.thread.join(2)
        for fd in self.fds:
            os.close(fd)
        super().close()
