//! Requests from addresses that nobody has, and peers that answer to nothing: the connection manager goes on for all others.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use softnic_cm::{Accept, Cm, Config, Connect, Event, Listen, PortSpace};
use softnic_nic::AddressAttr;
use softnic_nic::Port;
use softnic_nic::transports::QKEY_GSI;
use softnic_runtime::api::{CmListener, CmSink, ConnectError, ConnectionManager, Context, OpenOptions};
use softnic_wire::ext::Deth;
use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::cm::{Message, RejReason};
use softnic_wire::{
    ExtHeaders, MacAddr, Opcode, PacketFields, PathMtu, Psn, Qpn, RocePacket, Template, TxFrame, ethernet,
};

use crate::world::LIMIT;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PORT: u16 = 7174;
/// The one station on the other end of the wire, whoever it says that it is.
const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);
const ARP_TARGET: std::ops::Range<usize> = 38..42;

/// The far end of the wire that a NIC is on: frames as they are.
struct Wire {
    socket: UnixDatagram,
    folder: PathBuf,
    server_mac: MacAddr,
    /// Makes REQs, in the name of anybody.
    cm: Cm,
    next_qpn: u32,
}

/// A frame that the NIC sent.
#[derive(Debug)]
enum Seen {
    /// It asks who has the address.
    Question(Ipv4Addr),
    Mad {
        to: MacAddr,
        message: Box<Message>,
    },
}

impl Wire {
    fn new(name: &str) -> (Context, Wire) {
        let folder = std::env::temp_dir().join(format!("softnic-strangers-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [nic, far] = ["nic", "far"].map(|end| folder.join(end));
        let socket = UnixDatagram::bind(&far).unwrap();
        let device = format!("dgram:{},{},ip=10.0.0.1", nic.display(), far.display());
        let context = Context::open(&device.parse().unwrap(), &OpenOptions::default()).unwrap();
        socket.connect(&nic).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut seed = 5_u32;
        let numbers = move || {
            seed = seed.wrapping_mul(0x9e37_79b1).wrapping_add(1);
            seed
        };
        let cm = Cm::new(Config { ca_guid: 7, ..Config::default() }, numbers);
        let server_mac = context.port().mac;
        (context, Wire { socket, folder, server_mac, cm, next_qpn: 1000 })
    }

    /// A REQ from this address leaves; its communication id.
    fn ask(&mut self, from: IpAddr, port: u16) -> u32 {
        self.next_qpn += 1;
        let (from, to) = (SocketAddr::new(from, 40_000), SocketAddr::new(SERVER, port));
        let connect = Connect::ip(from, to, Qpn::new(self.next_qpn), Psn::new(1)).unwrap();
        let id = self.cm.connect(&connect).unwrap();
        let mut mad = [0; MAD_LEN];
        let route = self.cm.poll_transmit(softnic_wire::Instant::ZERO, &mut mad).unwrap();
        let port = Port { mac: STATION, addresses: vec![route.local], mtu: PathMtu::B4096 };
        let path = AddressAttr::new(route.remote, self.server_mac, 0, 1).path(&port).unwrap();
        let fields = PacketFields {
            opcode: Opcode::UD_SEND_ONLY,
            psn: Psn::new(0),
            ack_req: false,
            solicited: false,
            becn: false,
            payload_len: MAD_LEN,
        };
        let deth = Some(Deth { qkey: QKEY_GSI, src_qp: Qpn::GSI });
        let mut room = [0; 512];
        let mut tx = TxFrame::new(&mut room);
        let ext = ExtHeaders { deth, ..ExtHeaders::default() };
        Template::new(&path, Qpn::GSI, 0xffff).build(&mut tx, &fields, &ext, &mad).unwrap();
        let len = tx.len();
        self.socket.send(&room[..len]).unwrap();
        id.comm_id()
    }

    /// The next frame that the NIC sends; what is neither ARP nor a MAD of the connection manager is passed over.
    fn see(&self) -> Seen {
        loop {
            let mut room = [0; 4352];
            let len = self.socket.recv(&mut room).expect("a frame comes");
            let frame = &room[..len];
            let link = ethernet::Packet::new_checked(frame).unwrap();
            if u16::from_be_bytes([frame[12], frame[13]]) == 0x0806 {
                let target: [u8; 4] = frame[ARP_TARGET].try_into().unwrap();
                // The port probes its own address, and announces it.
                if IpAddr::from(target) == SERVER {
                    continue;
                }
                return Seen::Question(target.into());
            }
            let Ok(packet) = RocePacket::parse(frame) else { continue };
            if let Ok((_, message)) = Message::parse(&frame[packet.payload.clone()]) {
                return Seen::Mad { to: link.dst(), message: Box::new(message) };
            }
        }
    }

    /// The next MAD that the NIC sends; it asked nobody for an address.
    fn answer(&self) -> Message {
        match self.see() {
            Seen::Mad { to, message } => {
                assert_eq!(to, STATION, "an answer goes where the request came from");
                *message
            }
            Seen::Question(who) => panic!("{who} is asked for its MAC address"),
        }
    }

    /// Answers for an address.
    fn answer_for(&self, address: Ipv4Addr) {
        let mut reply = [0; 42];
        reply[..6].copy_from_slice(&self.server_mac.0);
        reply[6..12].copy_from_slice(&STATION.0);
        reply[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        reply[22..28].copy_from_slice(&STATION.0);
        reply[28..32].copy_from_slice(&address.octets());
        reply[32..38].copy_from_slice(&self.server_mac.0);
        reply[ARP_TARGET].copy_from_slice(&[10, 0, 0, 1]);
        self.socket.send(&reply).unwrap();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn stranger(n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    IpAddr::from([10, 1, high, low])
}

#[test]
fn requests_from_addresses_that_nobody_has_are_answered_at_once_and_have_nobody_asked() {
    let (context, mut wire) = Wire::new("flood");
    let manager = ConnectionManager::new(&context).unwrap();
    let (to, events) = channel();
    let listen = Listen::port(PortSpace::Tcp, (SERVER, PORT).into());
    manager.listen(&listen, CmSink::channel(to)).unwrap();
    for n in 0..2000 {
        wire.ask(stranger(n), PORT + 1);
        let Message::Rej(rej) = wire.answer() else { panic!("nobody listens there") };
        assert_eq!(rej.reason, RejReason::INVALID_SERVICE_ID);
        // One that the program accepts, and that never says another word.
        if n % 100 == 0 {
            wire.ask(stranger(n), PORT);
            let Event::ConnectRequest { id, .. } = events.recv_timeout(LIMIT).unwrap() else { panic!("a request") };
            manager.accept(id, &Accept::new(Qpn::new(0x100 + u32::from(n)), Psn::new(9))).unwrap();
            assert!(matches!(wire.answer(), Message::Rep(_)));
        }
    }
}

#[test]
fn a_flood_of_requests_to_a_port_that_a_program_listens_to_keeps_no_good_client_waiting() {
    const REQUESTS: u16 = 4096;
    /// Requests that are under way at a time.
    const BURST: u16 = 64;
    let (context, mut wire) = Wire::new("listened");
    let manager = ConnectionManager::new(&context).unwrap();
    let (to, events) = channel();
    let listen = Listen::port(PortSpace::Tcp, (SERVER, PORT).into());
    manager.listen(&listen, CmSink::channel(to)).unwrap();
    let (mut longest, start) = (Duration::ZERO, Instant::now());
    std::thread::scope(|scope| {
        // The program: it accepts whoever asks.
        let manager = &manager;
        scope.spawn(move || {
            for n in 0..u32::from(REQUESTS) {
                let Event::ConnectRequest { id, .. } = events.recv_timeout(LIMIT).unwrap() else { panic!("a request") };
                manager.accept(id, &Accept::new(Qpn::new(0x100 + n), Psn::new(9))).unwrap();
            }
        });
        for burst in 0..REQUESTS / BURST {
            let mut asked: Vec<u32> = (1..BURST).map(|n| wire.ask(stranger(burst * BURST + n), PORT)).collect();
            let start = Instant::now();
            let good = wire.ask(IpAddr::from([10, 0, 0, 2]), PORT);
            asked.push(good);
            // Everybody is answered, once. A REP of an earlier burst may come again.
            while !asked.is_empty() {
                let Message::Rep(rep) = wire.answer() else { panic!("the program accepts") };
                asked.retain(|&id| id != rep.remote_comm_id);
                if rep.remote_comm_id == good {
                    longest = longest.max(start.elapsed());
                }
            }
        }
    });
    let rate = f64::from(REQUESTS) / start.elapsed().as_secs_f64();
    eprintln!("{rate:.0} requests a second; the good client waited {longest:?} at most");
    let counters = manager.counters();
    assert_eq!((counters.dropped, counters.refused), (0, 0));
}

#[test]
fn a_program_that_accepts_waits_for_no_strangers_mac_address() {
    let (context, mut wire) = Wire::new("accept");
    let manager = ConnectionManager::new(&context).unwrap();
    let listener = CmListener::bind(&manager, (SERVER, PORT).into()).unwrap();
    let (pd, cq) = (context.alloc_pd(), context.create_cq(16).unwrap());
    let options = softnic_runtime::api::QpOptions::new(softnic_nic::QpKind::Rc, &cq);
    let qp = pd.create_qp(&options).unwrap();
    wire.ask(stranger(1), PORT);
    let request = listener.next(LIMIT).expect("somebody asks");
    let accepted = request.accept(&qp, &[], Duration::ZERO);
    assert!(matches!(accepted.err(), Some(ConnectError::NoAnswer(_))), "it is connected, and hears no RTU");
    // A REP, or a REJ where the end of the program's patience came before it; the question for the address leaves beside it.
    while !matches!(wire.see(), Seen::Mad { to: STATION, .. }) {}
}

#[test]
fn a_peer_that_answers_for_its_address_waits_for_none_that_do_not() {
    const SILENT: u16 = 64;
    let (context, wire) = Wire::new("silent");
    let manager = ConnectionManager::new(&context).unwrap();
    let (to, _events) = channel();
    let connect = |peer: IpAddr, n: u16| {
        let qpn = Qpn::new(2000 + u32::from(n));
        let connect = Connect::ip((SERVER, 40_000).into(), (peer, PORT).into(), qpn, Psn::new(1)).unwrap();
        manager.connect(&connect, CmSink::channel(to.clone())).unwrap();
    };
    (0..SILENT).for_each(|n| connect(stranger(n), n));
    let mut asked = BTreeSet::new();
    let start = Instant::now();
    while asked.len() < usize::from(SILENT) {
        let Seen::Question(who) = wire.see() else { panic!("nobody has answered yet") };
        asked.insert(who);
        assert!(start.elapsed() < LIMIT, "only {} are asked for at the same time", asked.len());
    }
    let good = Ipv4Addr::new(10, 0, 0, 2);
    // More at a time than can be under way.
    (0..200).for_each(|n| connect(good.into(), SILENT + n));
    let mut requests = 0;
    while requests < 200 {
        match wire.see() {
            Seen::Question(who) if who == good => wire.answer_for(good),
            Seen::Question(_) => {}
            Seen::Mad { message, .. } => {
                assert!(matches!(*message, Message::Req(_)));
                requests += 1;
            }
        }
    }
    assert_eq!(manager.counters().retransmitted, 0, "none was lost and sent again");
}

#[test]
fn a_thousand_requests_at_once_find_a_receive_though_the_manager_is_busy() {
    const REQUESTS: u16 = 1000;
    let (context, mut wire) = Wire::new("burst");
    let manager = ConnectionManager::new(&context).unwrap();
    let (go_on, waits) = channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    // Called by the manager's own thread, which does nothing else meanwhile.
    let busy = CmSink::new(move |_| {
        let _ = waits.lock().unwrap().recv_timeout(LIMIT);
        None
    });
    manager.listen(&Listen::port(PortSpace::Tcp, (SERVER, PORT).into()), busy).unwrap();
    for n in 0..REQUESTS {
        wire.ask(stranger(n), if n == 0 { PORT } else { PORT + 1 });
    }
    let came = || {
        let counters = context.counters();
        counters.rx_send_requests + counters.out_of_buffer
    };
    let start = Instant::now();
    while came() < REQUESTS.into() {
        assert!(start.elapsed() < LIMIT, "{} came", came());
        std::thread::yield_now();
    }
    go_on.send(()).unwrap();
    assert_eq!(context.counters().out_of_buffer, 0);
    (0..REQUESTS).for_each(|_| assert!(matches!(wire.answer(), Message::Rej(_))));
}
