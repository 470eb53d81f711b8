//! Running the program, and captures to run it on.

use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use softnic_pcaps::{LinkType, PcapWriter, Reader, Timestamp};
use softnic_wire::ext::Deth;
use softnic_wire::mad::MAD_LEN;
use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Psn, Qpn, Template, TxFrame};

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl Run {
    /// Asserts that all went well and nothing was said on stderr.
    pub(crate) fn well(self) -> Run {
        assert_eq!((self.code, &*self.stderr), (Some(0), ""), "{}", self.stdout);
        self
    }

    /// Asserts that it failed with this one line on stderr.
    pub(crate) fn failed_with(self, line: &str) -> Run {
        assert_eq!((self.code, &*self.stderr), (Some(1), &*format!("softnic: {line}\n")), "{}", self.stdout);
        self
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        self.stdout.lines().collect()
    }

    /// The lines of the packets, without the summary behind them.
    pub(crate) fn packets(&self) -> Vec<&str> {
        self.stdout.lines().take_while(|l| !l.is_empty()).collect()
    }
}

/// `softnic inspect`, to be given arguments.
pub(crate) fn inspect() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_softnic"));
    c.arg("inspect").stdin(Stdio::null()).env_remove("NO_COLOR");
    c
}

pub(crate) fn run(command: &mut Command) -> Run {
    let out = command.output().unwrap();
    Run {
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
        code: out.status.code(),
    }
}

/// Runs with these arguments and bytes on standard input.
pub(crate) fn run_with_input(arguments: &[&str], input: &[u8]) -> Run {
    let mut c = inspect();
    let piped = c.args(arguments).arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // In a thread of its own: the child may answer before it has read everything, or stop reading.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Run {
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
        code: out.status.code(),
    }
}

/// A capture of our corpus.
pub(crate) fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps/corpus").join(name)
}

/// The frames of a capture of our corpus.
pub(crate) fn frames(name: &str) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(File::open(corpus(name)).unwrap()).unwrap();
    let mut out = Vec::new();
    while let Some(f) = reader.next_frame().unwrap() {
        out.push(f.data.to_vec());
    }
    out
}

/// The time of the `i`th frame of captures made here: 1000 s after 1970 and a microsecond for each.
pub(crate) fn time(i: usize) -> Timestamp {
    Timestamp::new(1000, i as u32 * 1000)
}

/// A pcap file of these frames, of each at most `snap_len` bytes.
pub(crate) fn pcap(link: LinkType, frames: &[impl AsRef<[u8]>], snap_len: usize) -> Vec<u8> {
    let mut w = PcapWriter::new(Vec::new(), link).unwrap();
    for (i, f) in frames.iter().enumerate() {
        let f = f.as_ref();
        w.write(time(i), &f[..f.len().min(snap_len)], f.len() as u32).unwrap();
    }
    w.into_inner()
}

/// A pcap file of whole Ethernet frames.
pub(crate) fn ethernet(frames: &[impl AsRef<[u8]>]) -> Vec<u8> {
    pcap(LinkType::Ethernet, frames, usize::MAX)
}

/// A frame with a MAD from QP1 to QP1.
pub(crate) fn mad_frame(from: IpAddr, to: IpAddr, mad: &[u8; MAD_LEN]) -> Vec<u8> {
    let path = softnic_wire::Path {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None, None],
        addresses: Addresses::new(from, to).expect("of one version"),
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        src_port: 0xc001,
    };
    let (ack_req, solicited, becn, psn) = (false, false, false, Psn::new(0));
    let opcode = Opcode::UD_SEND_ONLY;
    let fields = PacketFields { opcode, psn, ack_req, solicited, becn, payload_len: MAD_LEN };
    let ext = ExtHeaders { deth: Some(Deth { qkey: 0x8001_0000, src_qp: Qpn::GSI }), ..ExtHeaders::default() };
    let mut room = [0; 512];
    let mut tx = TxFrame::new(&mut room);
    Template::new(&path, Qpn::GSI, 0xffff).build(&mut tx, &fields, &ext, mad).expect("there is room");
    tx.segments().0.to_vec()
}

/// A file in the folder for the tests' own files.
pub(crate) fn scratch(name: &str, contents: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, contents).unwrap();
    path
}

/// Lines of JSON.
pub(crate) fn objects(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
