//! What the kernels of both ends send to each other passes unharmed: ARP, NDP, TCP, UDP.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use softnic_runtime::bump::Options;

use crate::path::{adds_up, options, start, wired};
use crate::veth::{LIMIT, Veth};

const BYTES: usize = 3 << 20;

fn data(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|i| ((i * 31 + seed) >> 3) as u8).collect()
}

fn addresses(veth: &Veth) -> [[IpAddr; 2]; 2] {
    veth.add_ipv6().unwrap();
    [[0, 1].map(|side| veth.address(side).into()), [0, 1].map(|side| veth.address_v6(side).into())]
}

/// Both ends send at the same time and compare what comes.
fn talk(mut stream: TcpStream, ours: usize, theirs: usize) {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&data(ours)).unwrap());
        let mut came = vec![0; BYTES];
        stream.read_exact(&mut came).unwrap();
        assert!(came == data(theirs), "the data is another");
    });
}

#[test]
fn tcp_passes_unharmed_both_ways_whatever_the_roce_packets_suffer() {
    for (mtu, queues) in [(1500, 1), (4200, 2), (9000, 1)] {
        let Some((veth, bump)) = wired(queues, mtu, "loss=1,corrupt=1") else { return };
        for [_, server] in addresses(&veth) {
            let listener = veth.inside(1, || TcpListener::bind((server, 0)).unwrap());
            let port = listener.local_addr().unwrap().port();
            std::thread::scope(|scope| {
                scope.spawn(|| talk(listener.accept().unwrap().0, 2, 1));
                talk(veth.inside(0, || TcpStream::connect_timeout(&(server, port).into(), LIMIT).unwrap()), 1, 2);
            });
        }
        let summary = bump.stop().unwrap();
        for c in &summary.counters {
            adds_up(c);
            assert!(c.tx_bytes > 2 * BYTES as u64, "{c:?}");
            assert!(c.checksums_completed > 100, "kernels leave them to the card: {c:?}");
            assert_eq!((c.roce_frames, c.fault_lost, c.unsegmented), (0, 0, 0), "{c:?}");
        }
        // Frames of up to the MTU came in one piece.
        let c = &summary.counters[0];
        assert!(c.rx_bytes / c.rx_frames > u64::from(mtu) / 3, "{c:?}");
    }
}

/// Receives a datagram. A socket with a limit of time ends with EINTR when its process was stopped and goes on again,
/// though no signal has a handler (signal(7)): that is not the wire's doing.
fn receive(socket: &UdpSocket, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(room) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A datagram there and back: what came back.
fn echo(veth: &Veth, [client, server]: [IpAddr; 2], message: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let [there, here] =
        [(1, server), (0, client)].map(|(side, address)| veth.inside(side, || UdpSocket::bind((address, 0)).unwrap()));
    here.set_read_timeout(Some(patience)).unwrap();
    there.set_read_timeout(Some(patience)).unwrap();
    here.send_to(message, there.local_addr().unwrap()).unwrap();
    let mut room = vec![0; 65536];
    let (len, from) = receive(&there, &mut room)?;
    there.send_to(&room[..len], from).unwrap();
    let (len, _) = receive(&here, &mut room)?;
    room.truncate(len);
    Ok(room)
}

#[test]
fn udp_passes_in_one_piece_and_in_fragments() {
    let Some((veth, bump)) = wired(1, 1500, "") else { return };
    for pair in addresses(&veth) {
        for len in [0, 1, 100, 1452, 1472, 1473, 5000, 20_000] {
            let message: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let came = echo(&veth, pair, &message, LIMIT).unwrap_or_else(|e| panic!("{len} bytes to {}: {e}", pair[1]));
            assert_eq!(came, message, "{len} bytes to {}", pair[1]);
        }
    }
    bump.stop().unwrap().counters.iter().for_each(adds_up);
}

#[test]
fn faults_are_for_everything_where_that_is_asked_for() {
    let Some(veth) = Veth::with_middle(1, [1500; 2]) else { return };
    let bump = start(&veth, &Options { all_traffic: true, ..options("loss=1") }).unwrap();
    let pair = addresses(&veth)[0];
    let silence = echo(&veth, pair, b"hello", Duration::from_millis(100)).unwrap_err();
    assert_eq!(silence.kind(), io::ErrorKind::WouldBlock, "{silence}");
    let summary = bump.stop().unwrap();
    let c = &summary.counters[0];
    assert!(c.fault_lost > 0 && c.tx_frames == 0, "the question for the address is lost: {c:?}");
    // A SPEC with nothing in it does nothing, to whatever it is for.
    let bump = start(&veth, &Options { all_traffic: true, ..options("dup=1") }).unwrap();
    assert_eq!(echo(&veth, pair, b"hello", LIMIT).unwrap(), b"hello");
    let c = bump.stop().unwrap().counters[0];
    assert!(c.duplicated > 0 && c.tx_frames == 2 * c.duplicated, "{c:?}");
}
