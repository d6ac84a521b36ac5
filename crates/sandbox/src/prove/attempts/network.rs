//! The network, and sockets that reach processes of this machine.

use std::net::{Ipv4Addr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

use super::super::ground::Ground;
use super::super::sys::{Outcome, Refused, call, own, said, text};
use super::{Attempt, allow, forbid, shell};

pub(super) const TABLE: &[Attempt] = &[
    forbid("inet-tcp", "make a TCP socket", |_| socket(libc::AF_INET, libc::SOCK_STREAM, 0)),
    forbid("inet-udp", "make a UDP socket", |_| socket(libc::AF_INET, libc::SOCK_DGRAM, 0)),
    forbid("inet-ping", "make a socket to ping with", |_| {
        socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)
    })
    .unsaid(),
    forbid("inet-raw", "make a raw socket", |_| {
        socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
    })
    .root(),
    forbid("inet-sctp", "make an SCTP socket", |_| {
        socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)
    })
    .unsaid(),
    forbid("inet-mptcp", "make a multipath TCP socket", |_| {
        socket(libc::AF_INET, libc::SOCK_STREAM, IPPROTO_MPTCP)
    })
    .unsaid(),
    forbid("inet6-tcp", "make a TCP socket of IPv6", |_| {
        socket(libc::AF_INET6, libc::SOCK_STREAM, 0)
    })
    .unsaid(),
    forbid("inet6-udp", "make a UDP socket of IPv6", |_| {
        socket(libc::AF_INET6, libc::SOCK_DGRAM, 0)
    })
    .unsaid(),
    forbid("inet6-raw", "make a raw socket of IPv6", |_| {
        socket(libc::AF_INET6, libc::SOCK_RAW, 58)
    })
    .unsaid(),
    forbid("tcp-connect", "connect to a TCP listener", |ground| {
        TcpStream::connect((Ipv4Addr::LOCALHOST, ground.tcp))?;
        Ok("connected".into())
    }),
    forbid("tcp-bash", "connect with nothing but bash", |ground| {
        shell(ground, "/bin/bash", &format!("exec 5<>/dev/tcp/127.0.0.1/{}", ground.tcp))?;
        Ok("connected".into())
    }),
    forbid("tcp-listen", "listen for connections", |_| {
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok("listening".into())
    }),
    forbid("udp-send", "send a UDP packet", |ground| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.send_to(b"x", (Ipv4Addr::LOCALHOST, ground.udp))?;
        Ok("sent".into())
    }),
    forbid("dns", "look up a name", |_| {
        // Fails immediately without a network, and queries a name server with one.
        let found = ("heddle-prove.invalid", 80).to_socket_addrs();
        match found {
            Ok(_) => Ok("found".into()),
            Err(error) => Err(error.into()),
        }
    })
    .unsaid(),
    forbid("unix-stream", "connect to a Unix socket by its path", |ground| {
        UnixStream::connect(ground.outside("stream.sock"))?;
        Ok("connected".into())
    }),
    forbid("unix-datagram", "send to a Unix socket by its path", |ground| {
        UnixDatagram::unbound()?.send_to(b"x", ground.outside("dgram.sock"))?;
        Ok("sent".into())
    }),
    forbid("unix-seqpacket", "make a Unix socket of packets", |_| {
        socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)
    }),
    forbid("unix-abstract", "connect to a Unix socket by its abstract name", |ground| {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&ground.abstract_name)?)?;
        Ok("connected".into())
    }),
    forbid("unix-bind", "listen at a path outside", |ground| {
        UnixListener::bind(ground.outside("new.sock"))?;
        Ok("listening".into())
    }),
    forbid("socketpair-datagram", "send from one socket of a pair to another process", |ground| {
        let (one, _other) = UnixDatagram::pair()?;
        one.send_to(b"x", ground.outside("dgram.sock"))?;
        Ok("sent".into())
    }),
    forbid("socketpair-stream", "connect one socket of a pair to another process", |ground| {
        let (one, _other) = UnixStream::pair()?;
        // A family that means "not connected", and then a path.
        let mut address = [0_u8; 16];
        let _ = call!(libc::SYS_connect, one.as_raw_fd(), &mut address[..], 16);
        reconnect(&one.into(), ground)
    })
    .unsaid(),
    forbid("socketpair-inet", "make a pair of internet sockets", |_| {
        let mut pair = [0_u8; 8];
        call!(libc::SYS_socketpair, libc::AF_TIPC, libc::SOCK_STREAM, 0, &mut pair[..])?;
        Ok("made".into())
    })
    .unsaid(),
    forbid("netlink-route", "ask for the routes", |_| netlink(libc::NETLINK_ROUTE)),
    forbid("netlink-audit", "talk to the audit system", |_| netlink(libc::NETLINK_AUDIT)).unsaid(),
    forbid("netlink-devices", "listen to devices", |_| netlink(libc::NETLINK_KOBJECT_UEVENT))
        .unsaid(),
    forbid("netlink-sockets", "list the sockets of the machine", |_| {
        netlink(libc::NETLINK_SOCK_DIAG)
    })
    .unsaid(),
    forbid("netlink-netfilter", "change the firewall", |_| netlink(libc::NETLINK_NETFILTER))
        .unsaid(),
    forbid("packet", "see every packet", |_| socket(libc::AF_PACKET, libc::SOCK_RAW, 0)).unsaid(),
    forbid("vsock", "talk to the host of a virtual machine", |_| {
        socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)
    })
    .unsaid(),
    forbid("alg", "use the kernel's ciphers", |_| socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0))
        .unsaid(),
    forbid("bluetooth", "use Bluetooth", |_| socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, 1))
        .unsaid(),
    forbid("can", "use a CAN bus", |_| socket(libc::AF_CAN, libc::SOCK_RAW, 1)).unsaid(),
    forbid("key", "change IPsec", |_| socket(libc::AF_KEY, libc::SOCK_RAW, 2)).unsaid(),
    forbid("xdp", "take packets before the kernel", |_| socket(AF_XDP, libc::SOCK_RAW, 0)).unsaid(),
    forbid("tipc", "use TIPC", |_| socket(libc::AF_TIPC, libc::SOCK_STREAM, 0)).unsaid(),
    forbid("rds", "use RDS", |_| socket(libc::AF_RDS, libc::SOCK_SEQPACKET, 0)).unsaid(),
    forbid("smc", "use SMC", |_| socket(AF_SMC, libc::SOCK_STREAM, 0)).unsaid(),
    forbid("net-unix-stream", "with the network: connect to a Unix socket", |ground| {
        UnixStream::connect(ground.outside("stream.sock"))?;
        Ok("connected".into())
    })
    .with_network(),
    forbid("net-unix-abstract", "with the network: connect to an abstract name", |ground| {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&ground.abstract_name)?)?;
        Ok("connected".into())
    })
    .with_network(),
    forbid("net-socketpair", "with the network: send from one of a pair", |ground| {
        let (one, _other) = UnixDatagram::pair()?;
        one.send_to(b"x", ground.outside("dgram.sock"))?;
        Ok("sent".into())
    })
    .with_network(),
    forbid("net-netlink", "with the network: list the sockets of the machine", |_| {
        netlink(libc::NETLINK_SOCK_DIAG)
    })
    .with_network()
    .unsaid(),
    forbid("net-packet", "with the network: see every packet", |_| {
        socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
    })
    .with_network()
    .unsaid(),
    forbid("net-raw", "with the network: make a raw socket", |_| {
        socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
    })
    .with_network()
    .root(),
    forbid("net-vsock", "with the network: talk to the host", |_| {
        socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)
    })
    .with_network()
    .unsaid(),
    forbid("net-alg", "with the network: use the kernel's ciphers", |_| {
        socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)
    })
    .with_network()
    .unsaid(),
    forbid("net-write", "with the network: write outside", |ground| {
        std::fs::write(ground.outside("victim"), "changed")?;
        Ok("written".into())
    })
    .with_network(),
    forbid("net-ptrace", "with the network: be debugged", |_| {
        call!(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0)?;
        Ok("debugged".into())
    })
    .with_network(),
    forbid("net-kill", "with the network: end a process", |ground| {
        call!(libc::SYS_kill, ground.victim, libc::SIGTERM)?;
        Ok("ended".into())
    })
    .with_network(),
    allow("net-tcp", "with the network: make a TCP socket", |_| {
        socket(libc::AF_INET, libc::SOCK_STREAM, 0)
    })
    .with_network(),
    allow("net-udp", "with the network: make a UDP socket", |_| {
        socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
    })
    .with_network(),
    allow("net-route", "with the network: ask for the routes", |_| netlink(libc::NETLINK_ROUTE))
        .with_network(),
];

fn socket(family: i32, kind: i32, protocol: i32) -> Outcome {
    own(call!(libc::SYS_socket, family, kind | libc::SOCK_CLOEXEC, protocol)?);
    Ok("made".into())
}

fn netlink(protocol: i32) -> Outcome {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)
}

/// Reconnects a connected socket to the listener of the ground.
fn reconnect(socket: &OwnedFd, ground: &Ground) -> Result<String, Refused> {
    let path = text(ground.outside("stream.sock"));
    let mut address = [0_u8; 110];
    address[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    let bytes = path.as_bytes();
    let Some(room) = address.get_mut(2..2 + bytes.len()) else {
        return said("the path is too long");
    };
    room.copy_from_slice(bytes);
    call!(libc::SYS_connect, socket.as_raw_fd(), &mut address[..], 110)?;
    Ok("connected".into())
}

/// The C library does not define it for every architecture.
const IPPROTO_MPTCP: i32 = 262;
const AF_XDP: i32 = 44;
const AF_SMC: i32 = 43;
