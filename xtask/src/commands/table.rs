//! What is known of the commands in the documents: which are run otherwise than they stand there, and which are not run, and why.

/// First words of lines that are commands. A code block that begins with another word must not look like a command.
pub(super) const PROGRAMS: &[&str] = &[
    "softnic",
    "cargo",
    "apt-get",
    "sudo",
    "time",
    "ip",
    "ping",
    "cat",
    "echo",
    "head",
    "cc",
    "eval",
    "export",
    "dcb",
    "devlink",
    "ethtool",
    "mlnx_qos",
    "tcpdump",
    "tshark",
    "valgrind",
    "callgrind_annotate",
    "ib_write_bw",
    "ib_read_lat",
    "docker",
    "mpirun",
    "ucx_info",
    "./perf_peer.py",
    "…",
];

/// First words of code blocks that are something else: output, or source.
pub(super) const NOT_COMMANDS: &[&str] = &[
    "afxdp:eth0",
    "between:",
    "checks",
    "completed",
    "core",
    "digest",
    "dpdk:0000:01:00.0,ip=10.0.0.1/24",
    "drivers",
    "faces",
    "flow",
    "format",
    "goal",
    "goodput",
    "let",
    "payload",
    "protocol",
    "request",
    "requests",
    "sequence",
    "switch",
    "virtual",
    "x",
];

/// Not run, by a part of the command, and why. Options of `softnic` and `cargo xtask` are still checked.
pub(super) const EXCEPTIONS: &[(&str, &str)] = &[
    ("eth0", "needs a network interface of that name, and root"),
    ("eth1", "needs two network interfaces, and root"),
    ("afxdp:v", "needs a veth pair between network namespaces, and root"),
    ("afxdp:t0", "needs a tap and a virtual machine"),
    ("ip netns exec", "needs network namespaces, and root"),
    ("192.0.2.", "needs another machine"),
    ("apt-get", "installs something"),
    ("dpdk:net_", "needs the feature dpdk: tests of their own have it"),
    ("dev dpdk:0000:", "needs a PCI NIC that is DPDK's"),
    ("mlx5_0", "needs a ConnectX"),
    ("pci/", "needs a ConnectX"),
    ("ibv_devinfo", "needs an installed program: rdma-core"),
    ("run -- ib_write_bw", "two terminals: the layer of verbs programs has it"),
    ("-- ib_send_bw -n 2000", "two terminals: the layer of verbs programs has it"),
    ("sudo softnic share", "needs root"),
    ("softnic wire list", "needs a wire that runs"),
    ("nc -N 127.0.0.1 9500", "needs a switch that runs"),
    ("softnic switch --config", "needs network interfaces, and root"),
    ("softnic wire set", "needs a wire that runs"),
    ("docker run", "needs containers"),
    ("export UCX", "for the commands behind it"),
    ("mpirun", "needs an installed program: an MPI"),
    ("./server", "stands for a program of the reader's"),
    ("./client", "stands for a program of the reader's"),
    ("./my_test", "stands for a program of the reader's"),
    ("program.c", "stands for a program of the reader's"),
    ("softnic explore", "needs a C program: a test of the program runs it"),
    ("SOFTNIC_DEV=", "needs an installed program"),
    ("SOFTNIC_CHECK=", "two terminals: the layer of verbs programs has it"),
    ("tcpdump", "needs an interface with traffic"),
    ("cx.pcap", "a capture that the reader takes"),
    ("first.pcap", "a capture of the command before it"),
    ("tshark -r", "needs an installed program: the layer `tshark` has it"),
    ("tshark -X", "needs an installed program: a test has it"),
    ("valgrind", "needs an installed program"),
    ("callgrind_annotate", "needs an installed program"),
    ("…", "goes on from the line before it"),
    ("/dev/urandom", "makes the key that the folder has"),
    ("softnic counters", "needs a NIC that runs"),
    ("cargo xtask", "a layer of its own, or one that takes minutes"),
    ("cargo bench", "takes minutes"),
    ("cargo test", "a layer of its own, or one that takes minutes"),
    ("cargo build --release", "takes minutes"),
    ("cargo build --profile dist", "takes minutes"),
    ("--example by_address", "a test of the crate runs it"),
    ("--example goodput_table", "a layer of its own"),
    ("--example swarm_worker", "a seed of the swarm, for who looks for a bug"),
    ("--server", "runs until another machine has asked"),
    ("dgram:b.sock", "needs the --server of the line before it"),
    ("--out results", "takes minutes; --quick is run"),
    ("--transports rc,", "takes minutes; --quick is run"),
    ("--loss 1e-5..1e-2 --rtt", "takes minutes; a smaller grid is run"),
    (
        "experiment optinic-",
        "a test of the program runs the quick ones, which take half a minute each without --release",
    ),
    ("cc-fairness --quick", "a test of the program runs it, and it takes half a minute without --release"),
    ("lowar-small --json", "takes minutes"),
    ("lowar-burst --json", "takes minutes"),
    ("lowar-goodput --dev mem", "takes minutes, in real time"),
    ("--size 1M --count 4000", "measures time: ten seconds and more without --release"),
    ("--size 1M --count 8000", "measures time: ten seconds and more without --release"),
    ("--rate 400Gbit", "ten seconds and more without --release"),
    ("~/softnic-lib", "writes to the reader's home"),
];

/// Parts of commands that are run otherwise.
pub(super) const SHORTER: &[(&str, &str)] = &[
    // The program is built once, before all commands.
    ("cargo run --release -- ", "softnic "),
    ("cargo run --profile dist -- ", "softnic "),
    ("time softnic ", "softnic "),
    ("--duration 5", "--duration 0.2"),
    ("--count 100000", "--count 1000"),
    ("--depth 256 --count 1000", "--depth 256 --count 100"),
    ("write_bw -a ", "write_bw -a --duration 0.1 "),
    ("write_bw --cc dcqcn ", "write_bw --duration 0.5 --cc dcqcn "),
];

/// Commands that end with another exit code than 0, by a part of them.
pub(super) const EXIT_CODES: &[(&str, i32)] = &[
    // Work requests fail, as the document says.
    ("--fault down=100ms+20ms/200ms", 1),
];

/// Files that commands read, and what stands in them: a file of the repository, or text.
pub(super) const FILES: &[(&str, Content)] = &[
    ("capture.pcap", Content::Copy("pcaps/corpus/rc_atomic.pcap")),
    ("capture.pcapng", Content::Copy("pcaps/corpus/rc_atomic.pcap")),
    ("at-a.pcap", Content::Copy("pcaps/corpus/rc_atomic.pcap")),
    ("at-b.pcap.gz", Content::Copy("pcaps/corpus/rc_atomic.pcap")),
    ("capture.toml", Content::Text("[[qp]]\naddress = \"10.0.0.2\"\nqp = 0x11\nreceives = [512, 64]\n")),
    ("lost-response.toml", Content::Text(LOST_RESPONSE)),
    ("softnic.key", Content::Text("any thirty-two bytes of a secret")),
    ("drop-third.toml", Content::Text("[[event]]\naction = \"drop\"\nnth = 3\n")),
    ("third-twice.toml", Content::Document("docs/faults.md", 4)),
    ("answer.toml", Content::Document("docs/faults.md", 5)),
    ("mixed.toml", Content::Document("docs/faults.md", 6)),
    ("network.toml", Content::Text("kind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts = 4\n")),
];

const LOST_RESPONSE: &str =
    "[[event]]\naction = \"drop\"\ndirection = \"ba\"\nopcode = \"RC_RDMA_READ_RESPONSE_MIDDLE\"\nnth = 2\n";

/// What stands in a file.
pub(super) enum Content {
    /// The same as in a file of the repository.
    Copy(&'static str),
    /// This.
    Text(&'static str),
    /// The fenced block of a document with this number, from 0 on.
    Document(&'static str, usize),
}
