//! The programs that are run at both ends, and what their output must be.

use super::{best_effort, fio, libfabric, qperf, ucx};

/// Where servers wait that do not listen by the connection manager.
pub(super) const PORT: u16 = 18515;

/// What a program prints when all is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prints {
    /// What `ibv_devinfo -v` says of our device; there is no other end.
    Device,
    /// What programs say of our device and its port that find both in /sys, without verbs; there is no other end.
    Port,
    /// `ibv_*_pingpong`: so many bytes and iterations.
    PingPong,
    /// perftest's table: a row for each size from 2 bytes to this.
    SizesUpTo(u32),
    /// perftest's table with one row.
    OneRow,
    /// `rping -v`: so many pings.
    Pings(u32),
    /// The same from a server that stays for the next client.
    PingsTwice(u32),
    /// `ucmatose`, `udaddy`: how it went, in a word.
    Status,
    /// `mckey`: the same, of a multicast group.
    Group,
    /// `ucx_perftest`: see `ucx.rs`.
    Ucx,
    /// `fi_pingpong`: see `libfabric.rs`.
    Fabric,
    /// `fi_info`: the same; there is no other end.
    Fabrics,
    /// `fio`: see `fio.rs`.
    Fio,
    /// `qperf`: see `qperf.rs`.
    Qperf,
}

/// How one sees that a server is ready for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// It listens at a TCP port.
    Tcp,
    /// It listens by the connection manager.
    Cm,
    /// It is in the multicast group.
    Group,
}

/// A program with options, the same for both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) program: &'static str,
    pub(super) options: &'static str,
    /// What softnic's RC queue pairs recover from loss by, unless by the standard.
    pub(super) transport: Option<&'static str>,
    /// Faults on what the ends send: see `fault_of`.
    pub(super) fault: Option<&'static str>,
    pub(super) prints: Prints,
    /// Whether every test run has it.
    pub(super) short: bool,
}

impl Case {
    /// What it is called here.
    pub(super) fn name(&self) -> String {
        let fault = self.fault.map(|f| format!(" with {f}")).unwrap_or_default();
        let transport = self.transport.map(|t| format!(" over {t}")).unwrap_or_default();
        match format!("{}{transport}{fault}", self.options).trim() {
            "" => format!("{}/plain", self.program),
            options => format!("{}/{options}", self.program),
        }
    }

    /// The words of the command: `gid` is the index of the GID to use.
    pub(super) fn words(&self, device: &str, gid: u32, server: Option<&str>) -> Vec<String> {
        match self.prints {
            Prints::Ucx => return ucx::words(self.options, server),
            Prints::Fabric => return libfabric::words(self.options, server),
            Prints::Fio => return fio::words(self.options, server),
            Prints::Qperf => return qperf::words(self.options, server),
            _ => {}
        }
        let gid = gid.to_string();
        let address = server.unwrap_or_default();
        let (common, server) = match self.prints {
            Prints::Pings(_) if server.is_some() => (vec!["-c", "-a", address], None),
            Prints::Pings(_) => (vec!["-s"], None),
            Prints::PingsTwice(_) if server.is_some() => (vec!["-c", "-a", address], None),
            Prints::PingsTwice(_) => (vec!["-s", "-P"], None),
            Prints::Status if server.is_some() => (vec!["-s", address], None),
            Prints::Status => (vec![], None),
            Prints::Group => (vec!["-m", GROUP], server.map(|_| "-s")),
            Prints::Fabrics | Prints::Port => (vec![], None),
            _ => (self.perftest_words(device, &gid), server),
        };
        let all = [self.program].into_iter().chain(common).chain(self.options.split_whitespace()).chain(server);
        all.map(str::to_owned).collect()
    }

    /// What programs that choose a device by its name are told.
    fn perftest_words<'a>(&self, device: &'a str, gid: &'a str) -> Vec<&'a str> {
        match self.prints {
            Prints::Device => vec!["-d", device],
            Prints::PingPong => vec!["-d", device, "-g", gid],
            // Without -F it warns of how the clock of the processor changes.
            _ => vec!["-d", device, "-x", gid, "-F"],
        }
    }

    /// The same for a client whose server is slow. With -R perftest 4.5 connects twice, the second time at once, and where its server does
    /// not listen yet it tries again with ids that it has destroyed, and dies. So what it sends takes longer than its server takes to listen.
    pub(super) fn with_a_slow_server(mut self) -> Case {
        if self.options.split_whitespace().any(|word| word == "-R") {
            self.fault = Some("delay=400ms");
        }
        self
    }

    /// Faults on what one end sends: of qperf, only on what its client does.
    pub(super) fn fault_of(&self, is_client: bool) -> Option<&'static str> {
        self.fault.filter(|_| is_client || self.prints != Prints::Qperf)
    }

    /// How one sees that its server is ready.
    pub(super) fn ready(&self) -> Ready {
        match self.prints {
            Prints::Pings(_) | Prints::PingsTwice(_) | Prints::Status | Prints::Fio => Ready::Cm,
            Prints::Group => Ready::Group,
            _ if self.options.split_whitespace().any(|word| word == "-R") => Ready::Cm,
            _ => Ready::Tcp,
        }
    }
}

/// The group that mckey joins, and the same as /proc/net/igmp writes it.
const GROUP: &str = "239.1.2.3";
pub(super) const GROUP_IN_PROC: &str = "030201EF";

/// The largest message of perftest's `-a`.
const LARGEST: u32 = 1 << 23;

pub(super) const fn case(program: &'static str, options: &'static str, prints: Prints, short: bool) -> Case {
    Case { program, options, transport: None, fault: None, prints, short }
}

/// Between two of ours.
pub(super) fn pair() -> Vec<Case> {
    use Prints::{Device, OneRow, PingPong, Port, SizesUpTo};
    let mut all = vec![case("ibv_devinfo", "-v", Device, true)];
    all.extend(["ibstat", "ibstatus"].map(|program| case(program, "", Port, true)));
    for (options, short) in [
        ("", true),
        ("-c -n 200", true),
        ("-e", true),
        ("-N -c -n 200", true),
        ("-N -e", false),
        ("-s 1 -n 5000", false),
        ("-s 65536 -n 200 -c", true),
        ("-m 4096 -s 1000000 -n 50 -c", true),
        ("-m 256 -s 10000 -n 200 -c", false),
        ("-r 10 -n 1000", false),
    ] {
        all.push(case("ibv_rc_pingpong", options, PingPong, short));
    }
    for (options, short) in [("-n 500", true), ("-e -n 500", false), ("-m 4096 -s 100000 -n 50 -c", false)] {
        all.push(case("ibv_uc_pingpong", options, PingPong, short));
    }
    for (options, short) in [("-n 500", true), ("-e -n 500 -c", false), ("-s 4096 -n 200", false), ("-s 1", false)] {
        all.push(case("ibv_ud_pingpong", options, PingPong, short));
    }
    for (options, short) in [("-n 200", true), ("-e -n 200", false), ("-q 4 -r 100 -n 500 -c", false)] {
        all.push(case("ibv_srq_pingpong", options, PingPong, short));
    }
    for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        all.push(case(program, "-a -n 20", SizesUpTo(LARGEST), program != "ib_send_bw"));
        all.push(case(program, "-n 1000", OneRow, false));
        all.push(case(program, "-q 8 -s 4096 -n 200", OneRow, true));
        all.push(case(program, "-b -s 65536 -n 200", OneRow, true));
        all.push(case(program, "-m 1024 -s 65536 -n 200", OneRow, false));
        all.push(case(program, "-m 4096 -s 65536 -n 200", OneRow, false));
        all.push(case(program, "-b -q 8 -a -n 20", SizesUpTo(LARGEST), false));
        all.push(case(program, "-l 8 -s 1024 -n 800", OneRow, false));
        all.push(case(program, "-s 64 -D 3", OneRow, false));
    }
    for (program, options, short) in [
        ("ib_write_bw", "-c UC -s 65536 -n 200", true),
        ("ib_write_bw", "-I 64 -s 64 -n 1000", false),
        ("ib_read_bw", "-e -s 65536 -n 200", false),
        ("ib_read_bw", "-o 1 -s 65536 -n 200", false),
        ("ib_send_bw", "-e -s 65536 -n 200", true),
        // What is lost nobody sends again, and the server waits for it: no more than its queue (1024 frames) and its receives (512) hold.
        ("ib_send_bw", "-c UC -s 65536 -n 15", false),
        ("ib_send_bw", "-c UD -s 1024 -n 400", true),
        ("ib_send_bw", "--use-srq -s 4096 -n 500", true),
        ("ib_send_bw", "--use-srq -q 8 -s 4096 -n 200", false),
        ("ib_send_bw", "-r 16 -t 16 -s 4096 -n 1000", false),
        ("ib_atomic_bw", "-n 1000", true),
        ("ib_atomic_bw", "-A CMP_AND_SWAP -n 1000", false),
        ("ib_atomic_bw", "-q 8 -n 500", false),
        ("ib_atomic_bw", "-b -n 500", false),
        ("ib_atomic_bw", "-e -n 500", false),
        ("ib_atomic_lat", "-n 1000", true),
        ("ib_atomic_lat", "-A CMP_AND_SWAP -n 1000", false),
        ("ib_atomic_lat", "-e -n 500", false),
        ("ib_write_lat", "-n 1000", true),
        ("ib_write_lat", "-c UC -s 4096 -n 500", false),
        ("ib_write_lat", "-I 32 -s 32 -n 1000", false),
        ("ib_read_lat", "-n 1000", true),
        ("ib_read_lat", "-e -n 500", false),
        ("ib_send_lat", "-n 1000", true),
        ("ib_send_lat", "-e -n 500", true),
        ("ib_send_lat", "-c UC -n 500", false),
        ("ib_send_lat", "-c UD -s 1024 -n 500", false),
        ("ib_send_lat", "--use-srq -n 500", false),
    ] {
        all.push(case(program, options, OneRow, short));
    }
    for program in ["ib_write_lat", "ib_read_lat", "ib_send_lat"] {
        all.push(case(program, "-a -n 20", SizesUpTo(LARGEST), false));
    }
    all.extend(by_address());
    all.extend(ucx::cases());
    all.extend(libfabric::cases());
    all.extend(fio::cases());
    all.extend(qperf::cases());
    // UC has no lost message back, and perftest waits for each: only RC is for a lossy wire.
    for (program, options, prints, short) in [
        ("ib_write_bw", "-s 65536 -n 500", OneRow, true),
        ("ib_read_bw", "-s 65536 -n 500", OneRow, false),
        ("ib_send_bw", "-s 65536 -n 500", OneRow, false),
        ("ib_atomic_bw", "-n 500", OneRow, false),
        ("ibv_rc_pingpong", "-s 65536 -n 200 -c", PingPong, false),
        ("ibv_rc_pingpong", "-e -c", PingPong, false),
    ] {
        all.push(Case { fault: Some("loss=1e-3,reorder=1e-3:3"), ..case(program, options, prints, short) });
    }
    all.extend(selective());
    all.extend(repaired());
    all.extend(best_effort::cases());
    all
}

/// On one host, over a network in memory: what two processes behind one address have to tell apart.
pub(super) fn host() -> Vec<Case> {
    use Prints::{Device, Fabric, Group, OneRow, PingPong, Pings, PingsTwice, SizesUpTo, Status, Ucx};
    let plain = [
        ("ibv_devinfo", "-v", Device, true),
        ("ibv_rc_pingpong", "-c -n 200", PingPong, true),
        ("ibv_rc_pingpong", "-e", PingPong, false),
        ("ibv_uc_pingpong", "-n 500", PingPong, true),
        ("ibv_ud_pingpong", "-n 500", PingPong, true),
        ("ibv_srq_pingpong", "-n 200", PingPong, true),
        ("ib_write_bw", "-a -n 20", SizesUpTo(LARGEST), true),
        ("ib_read_bw", "-a -n 20", SizesUpTo(LARGEST), false),
        ("ib_send_bw", "-a -n 20", SizesUpTo(LARGEST), false),
        ("ib_send_bw", "-e -s 65536 -n 200", OneRow, true),
        ("ib_send_bw", "-c UD -s 1024 -n 400", OneRow, false),
        ("ib_write_bw", "-b -q 8 -s 65536 -n 100", OneRow, true),
        ("ib_write_bw", "-R -s 65536 -n 200", OneRow, true),
        ("ib_atomic_bw", "-n 1000", OneRow, false),
        ("ib_write_lat", "-n 1000", OneRow, true),
        ("ib_send_lat", "-e -n 500", OneRow, false),
        ("rping", "-v -C 100", Pings(100), true),
        ("rping", "-v -C 20", PingsTwice(20), true),
        ("ucmatose", "-c 4 -C 10", Status, true),
        ("udaddy", "-C 10", Status, true),
        ("mckey", "-C 10", Group, true),
    ];
    let plain = plain.map(|(program, options, prints, short)| case(program, options, prints, short));
    let over = |transport, fault| Case { transport, fault, ..case("rping", "-v -C 50", Pings(50), true) };
    let lossy = Some("loss=1e-2");
    let with_loss = [over(Some("sr"), None), over(Some("lowar:32,1"), lossy)];
    // The verbs provider of libfabric leaves the addresses of loopback out, by which it would find peers; datagrams do without.
    let by_address =
        |case: &Case| case.prints == Fabric && !["dgram", "ofi_rxd"].iter().any(|word| case.options.contains(word));
    let larger = ucx::cases().into_iter().chain(libfabric::cases()).filter(|case| matches!(case.prints, Ucx | Fabric));
    let larger = larger.filter(|case| !by_address(case));
    // qperf's server names its port before it listens there: what its client sends takes longer than that.
    let slow = |case| Case { fault: Some("delay=5ms"), ..case };
    let others = fio::on_one_host().into_iter().chain(qperf::cases().into_iter().map(slow));
    plain.into_iter().chain(with_loss).chain(larger).chain(others).collect()
}

/// On an interface that a daemon shares: what processes behind one address have to tell apart, there and on the wire.
pub(super) fn shared() -> Vec<Case> {
    use Prints::{Fabric, Group, OneRow, PingPong, Pings, SizesUpTo, Status, Ucx};
    [
        ("ibv_rc_pingpong", "-c -n 200", PingPong, true),
        ("ibv_rc_pingpong", "-e", PingPong, false),
        ("ibv_uc_pingpong", "-n 500", PingPong, false),
        ("ibv_ud_pingpong", "-n 500", PingPong, true),
        ("ib_write_bw", "-a -n 20", SizesUpTo(LARGEST), false),
        ("ib_read_bw", "-a -n 20", SizesUpTo(LARGEST), false),
        ("ib_send_bw", "-c UD -s 1024 -n 400", OneRow, false),
        ("ib_write_bw", "-R -s 65536 -n 200", OneRow, true),
        ("rping", "-v -C 100", Pings(100), true),
        ("ucmatose", "-c 4 -C 10", Status, false),
        ("udaddy", "-C 10", Status, true),
        ("mckey", "-C 10", Group, true),
    ]
    .into_iter()
    .map(|(program, options, prints, short)| case(program, options, prints, short))
    .chain([Case { transport: Some("sr"), ..case("rping", "-v -C 50", Pings(50), true) }])
    .chain(ucx::cases().into_iter().filter(|case| case.prints == Ucx && case.short).take(2))
    .chain(
        libfabric::cases()
            .into_iter()
            .filter(|case| case.prints == Fabric)
            .take(2)
            .map(|case| Case { short: false, ..case }),
    )
    .collect()
}

/// Over LoWAR, which both ends have.
fn repaired() -> Vec<Case> {
    use Prints::{OneRow, Pings, SizesUpTo};
    let lossy = Some("loss=1e-3");
    let rough = Some("loss=1e-2,reorder=1e-2:3,dup=1e-2");
    [
        ("ib_write_bw", "-s 65536 -n 200", None, OneRow, true),
        ("ib_write_bw", "-a -n 20", None, SizesUpTo(LARGEST), false),
        ("ib_send_bw", "-a -n 20", None, SizesUpTo(LARGEST), false),
        ("ib_read_bw", "-a -n 20", None, SizesUpTo(LARGEST), false),
        ("ib_write_bw", "-m 1024 -s 65536 -n 500", lossy, OneRow, true),
        ("ib_send_bw", "-m 1024 -s 65536 -n 500", lossy, OneRow, true),
        ("ib_read_bw", "-m 1024 -s 65536 -n 500", lossy, OneRow, true),
        ("ib_write_bw", "-m 1024 -b -q 8 -s 65536 -n 100", rough, OneRow, false),
        ("ib_send_bw", "-m 1024 -s 65536 -n 200", rough, OneRow, false),
        ("ib_read_bw", "-m 1024 -s 65536 -n 200", rough, OneRow, false),
        ("ib_send_lat", "-n 500", None, OneRow, false),
        ("rping", "-v -C 100", None, Pings(100), true),
        ("rping", "-v -C 50", rough, Pings(50), true),
        ("rping", "-v -C 50 -S 60000", rough, Pings(50), false),
    ]
    .map(|(program, options, fault, prints, short)| Case {
        transport: Some("lowar:32,1"),
        fault,
        ..case(program, options, prints, short)
    })
    .into()
}

/// Over Selective Repeat, which both ends have.
fn selective() -> Vec<Case> {
    use Prints::{OneRow, PingPong, Pings, SizesUpTo};
    let lossy = Some("loss=1e-2");
    let rough = Some("loss=2e-2,reorder=5e-2:5,dup=2e-2");
    [
        ("ib_write_bw", "-s 65536 -n 200", None, OneRow, true),
        ("ib_write_bw", "-a -n 20", None, SizesUpTo(LARGEST), false),
        ("ib_send_bw", "-a -n 20", None, SizesUpTo(LARGEST), false),
        ("ib_read_bw", "-a -n 20", None, SizesUpTo(LARGEST), false),
        ("ib_write_bw", "-s 65536 -n 500", lossy, OneRow, true),
        ("ib_send_bw", "-s 65536 -n 500", lossy, OneRow, true),
        ("ib_read_bw", "-s 65536 -n 500", lossy, OneRow, false),
        ("ib_write_bw", "-b -q 8 -s 65536 -n 100", rough, OneRow, false),
        ("ib_send_bw", "-b -q 8 -s 65536 -n 100", rough, OneRow, false),
        ("ib_send_bw", "--use-srq -q 4 -s 10000 -n 200", lossy, OneRow, false),
        ("ib_atomic_bw", "-n 500", lossy, OneRow, false),
        ("ib_send_lat", "-n 500", None, OneRow, false),
        ("ib_write_lat", "-n 500", None, OneRow, false),
        ("ibv_rc_pingpong", "-s 65536 -n 200 -c", rough, PingPong, false),
        // Not ibv_srq_pingpong with loss: its client ends when it has counted enough, whatever is still missing of the server's messages.
        ("ibv_srq_pingpong", "-n 200", None, PingPong, false),
        ("rping", "-v -C 100", None, Pings(100), true),
        ("rping", "-v -C 50", lossy, Pings(50), true),
        ("rping", "-v -C 50 -S 60000", rough, Pings(50), false),
    ]
    .map(|(program, options, fault, prints, short)| Case {
        transport: Some("sr"),
        fault,
        ..case(program, options, prints, short)
    })
    .into()
}

/// Programs that connect by address, with librdmacm.
fn by_address() -> Vec<Case> {
    use Prints::{Group, OneRow, Pings, PingsTwice, Status};
    vec![
        case("rping", "-v -C 10", Pings(10), true),
        case("rping", "-v -C 1000", PingsTwice(1000), true),
        case("rping", "-v -C 100 -S 60000", Pings(100), false),
        case("ucmatose", "", Status, true),
        case("ucmatose", "-c 20 -C 50 -S 5000", Status, false),
        case("udaddy", "", Status, true),
        case("mckey", "", Group, true),
        case("ib_write_bw", "-R -s 65536 -n 200", OneRow, true),
        case("ib_send_bw", "-R -s 65536 -n 200", OneRow, true),
        case("ib_read_lat", "-R -n 200", OneRow, false),
    ]
}

/// Between one of ours and Soft-RoCE, which is emulated and slow.
pub(super) fn rxe() -> Vec<Case> {
    use Prints::{OneRow, PingPong, SizesUpTo};
    vec![
        case("ibv_rc_pingpong", "-n 100", PingPong, true),
        case("ibv_rc_pingpong", "-e -c -n 100", PingPong, false),
        case("ibv_rc_pingpong", "-m 4096 -s 100000 -n 20 -c", PingPong, false),
        case("ibv_uc_pingpong", "-n 100", PingPong, false),
        case("ibv_ud_pingpong", "-n 100", PingPong, false),
        case("ibv_srq_pingpong", "-n 50", PingPong, false),
        case("ib_write_bw", "-s 65536 -n 20", OneRow, true),
        case("ib_read_bw", "-o 16 -s 65536 -n 20", OneRow, true),
        case("ib_send_bw", "-s 65536 -n 20", OneRow, true),
        case("ib_write_bw", "-a -n 5", SizesUpTo(LARGEST), false),
        case("ib_atomic_bw", "-o 16 -n 50", OneRow, false),
        case("ib_write_lat", "-n 50", OneRow, false),
        case("ib_read_lat", "-o 16 -n 50", OneRow, false),
        case("ib_send_lat", "-n 50", OneRow, false),
        case("rping", "-v -C 10", Prints::Pings(10), true),
        case("rping", "-v -C 50", Prints::PingsTwice(50), false),
        case("ucmatose", "", Prints::Status, false),
        case("udaddy", "", Prints::Status, false),
        case("ib_write_bw", "-R -s 65536 -n 20", OneRow, false),
        // It knows nothing of Selective Repeat, and says so.
        Case { transport: Some("sr"), ..case("ib_write_bw", "-s 65536 -n 20", OneRow, true) },
        Case { transport: Some("sr"), ..case("ib_send_bw", "-s 65536 -n 20", OneRow, false) },
        Case { transport: Some("sr"), ..case("rping", "-v -C 10", Prints::Pings(10), false) },
        // Nor of LoWAR.
        Case { transport: Some("lowar:32,1"), ..case("ib_write_bw", "-m 1024 -s 65536 -n 20", OneRow, true) },
    ]
}
