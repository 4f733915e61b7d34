#!/usr/bin/env python3
"""Writes the small captures of this folder: one of each format, link and tunnel that the auditor reads, as inputs for the fuzz test.
Their packets are those of captures beside `crates/wire`, so that their ICRCs are right. Standard library only.
"""

import gzip
import os
import shutil
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
WIRE = os.path.join(HERE, "..", "..", "..", "wire", "tests", "captures")


def frames(name, count):
    with open(os.path.join(WIRE, name), "rb") as f:
        data = f.read()
    at, found = 24, []
    while at < len(data) and len(found) < count:
        length = struct.unpack_from("<I", data, at + 8)[0]
        found.append(data[at + 16:at + 16 + length])
        at += 16 + length
    return found


def pcap(name, packets, link=1, order="<", magic=0xA1B2C3D4, cut=0):
    out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for n, p in enumerate(packets):
        kept = p[:len(p) - cut]
        out += struct.pack(order + "IIII", 1000, n * 10, len(kept), len(p)) + kept
    return write(name, out)


def write(name, data):
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(data)
    return data


def block(order, kind, body):
    body += bytes(-len(body) % 4)
    return struct.pack(order + "II", kind, len(body) + 12) + body + struct.pack(order + "I", len(body) + 12)


def option(order, code, value):
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def pcapng(name, packets, order):
    out = block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + option(order, 4, b"a program") + bytes(4))
    for resolution in (9, 6, 0x8A):
        options = option(order, 2, b"eth0") + option(order, 9, bytes([resolution])) + option(order, 14, struct.pack(order + "q", 3)) + bytes(4)
        out += block(order, 1, struct.pack(order + "HHI", 1, 0, 0) + options)
    out += block(order, 4, struct.pack(order + "HH", 1, 8) + b"\x0a\0\0\1abc\0" + bytes(4)) + block(order, 0x0BAD, b"own")
    for n, p in enumerate(packets):
        if n % 5 == 4:
            out += block(order, 3, struct.pack(order + "I", len(p)) + p)
            continue
        body = struct.pack(order + "IIIII", n % 3, n, n * 1000, len(p), len(p)) + p + bytes(-len(p) % 4)
        out += block(order, 6, body + option(order, 2, struct.pack(order + "I", 1 + n % 2)) + option(order, 1, b"a word") + bytes(4))
    counts = option(order, 4, struct.pack(order + "q", 9)) + option(order, 5, struct.pack(order + "q", 2)) + bytes(4)
    return write(name, out + block(order, 5, struct.pack(order + "III", 0, 1, 2) + counts))


def ip(protocol, payload, fragment=0):
    head = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 7, fragment, 64, protocol, 0, b"\x0a\1\0\1", b"\x0a\1\0\2"))
    total = sum(struct.unpack("!10H", bytes(head)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", head, 10, total ^ 0xFFFF)
    return bytes(head) + payload


def udp(port, payload):
    return ip(17, struct.pack("!HHHH", 50000, port, 8 + len(payload), 0) + payload)


def ether(kind, payload):
    return b"\2\0\0\0\0\2\2\0\0\0\0\1" + struct.pack("!H", kind) + payload


def tlv(kind, value):
    return struct.pack("!H", kind << 9 | len(value)) + value


def lldp(mac, willing, enabled):
    ets = bytes([willing, 0, 1, 0, 0, 50, 50, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0])
    body = (tlv(1, b"\4" + mac) + tlv(2, b"\5eth1") + tlv(3, b"\0\x78") + tlv(5, b"node") + tlv(127, b"\0\x80\xc2\x09" + ets)
            + tlv(127, b"\0\x80\xc2\x0a" + ets) + tlv(127, b"\0\x80\xc2\x0b" + bytes([willing | 8, enabled]))
            + tlv(127, b"\0\x80\xc2\x0c\0\x63\x12\xb7") + tlv(127, b"\0\x1b\x21\2" + tlv(1, bytes(10)) + tlv(3, b"\0\0\x80\0\x08\x08"))
            + tlv(8, b"\5\1\x0a\0\0\1\2\0\0\0\1\0") + b"\0\0")
    return b"\1\x80\xc2\0\0\x0e" + mac + b"\x88\xcc" + body


def pause(opcode, body):
    return (b"\1\x80\xc2\0\0\1\2\0\0\0\0\1\x88\x08" + struct.pack("!H", opcode) + body).ljust(60, b"\0")


def main():
    some = frames("rc-all-mtu512.pcap", 14)
    few = some[:5]
    pcap("be-us.pcap", few, order=">")
    pcap("le-ns.pcap", few, magic=0xA1B23C4D)
    pcap("be-ns.pcap", few, order=">", magic=0xA1B23C4D)
    pcap("cut.pcap", few, cut=20)
    pcapng("le.pcapng", some, "<")
    whole = pcapng("be.pcapng", few, ">")
    write("two.pcapng.gz", gzip.compress(whole + whole, mtime=0))
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", "-f", os.path.join(HERE, "le.pcapng"), "-o", os.path.join(HERE, "le.pcapng.zst")], check=True)
    pcap("raw.pcap", [p[14:] for p in few] + [p[14:] for p in frames("v6-rc.pcap", 3)], link=101)
    pcap("cooked.pcap", [struct.pack("!HHH8sH", n % 5, 1, 6, p[6:12], 0x0800) + p[14:] for n, p in enumerate(few)], link=113)
    pcap("cooked2.pcap", [struct.pack("!HHIHBB8s", 0x0800, 0, 2 + n % 2, 1, n % 5, 6, p[6:12]) + p[14:] for n, p in enumerate(few)], link=276)
    erf = [struct.pack("<Q", n << 32) + struct.pack("!BBHHHH", 2, 4, 18 + len(p), 0, len(p) + 4, 0) + p for n, p in enumerate(few)]
    erf += [struct.pack("<Q", 9 << 32) + struct.pack("!BBHHH", 0x95, 5, 60, 0, 40) + b"\x03" + bytes(7) + bytes(40)]
    pcap("erf.pcap", erf, link=197)
    lrh = struct.pack("!BBHHH", 0, 0x02, 4, 6 + 3, 5) + bytes.fromhex("04000000ffff000011800000010000")[:12] + bytes(16)
    pcap("infiniband.pcap", [lrh, lrh[:20], struct.pack("!BBHHH", 0, 3, 4, 20, 5) + b"\x60" + bytes(71)], link=247)
    tags = [p[:12] + bytes.fromhex("88a860648100600a") + p[12:] for p in few]
    v1 = ether(0x8915, b"\x60\0\0\0" + struct.pack("!HBB", 16, 0x1B, 64) + bytes(32) + bytes.fromhex("04400000ffff000011800000010000")[:12] + bytes(4))
    tunnels = [ether(0x0800, udp(4789, b"\x08\0\0\0\0\0\x0a\0" + few[0])), ether(0x0800, ip(47, b"\0\0\x65\x58" + few[1])),
               ether(0x0800, ip(47, b"\0\0\x08\0" + few[2][14:])), ether(0x0800, ip(47, b"\x10\0\x88\xbe\0\0\0\1\x10\x0a\0\1\0\0\0\0" + few[3])),
               ether(0x0800, ip(47, b"\x10\0\x22\xeb\0\0\0\1\x20\x0a\0\1" + bytes(8) + few[3])), ether(0x0800, ip(4, few[0][14:])),
               ether(0x8847, b"\0\x01\x01\x40" + few[1][14:]), ether(0x0800, ip(17, few[2][34:60], 0x2000)), ether(0x0800, ip(17, few[2][60:], 3)), v1]
    pcap("tags-tunnels.pcap", tags + tunnels)
    a, b = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"
    pcap("pauses-lldp.pcap", [lldp(a, 0x80, 8), lldp(b, 0, 0x18), pause(1, b"\xff\xff"), pause(0x101, b"\0\x08" + b"\xff\xff" * 8), few[0],
                              pause(0x101, b"\0\xff" + bytes(16)), pause(9, b""), lldp(a, 0, 8), lldp(b, 0x80, 8)])
    # A train, as before segmentation: packets of one size behind one UDP header.
    body = b"".join(p[42:] for p in some if len(p) == len(some[0]))
    train = ether(0x0800, some[0][14:34] + some[0][34:42] + body)
    # Its IP checksum is for the adapter to fill in.
    pcap("train.pcap", [train[:16] + struct.pack("!H", len(train) - 14) + train[18:24] + bytes(2) + train[26:38]
                        + struct.pack("!H", len(train) - 34) + bytes(2) + train[42:]])


if __name__ == "__main__":
    main()
