//! `softnic collective` with a process for each rank: over memory that processes share, and over AF_XDP between namespaces; ranks that die,
//! never come, or disagree.

#[path = "common/namespaces.rs"]
mod namespaces;

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use namespaces::Namespaces;
use serde_json::Value;

/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(120);

/// A rank; it ends with the test.
struct Rank(Child);

impl Drop for Rank {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rank {
    fn start(mut command: Command, args: &[&str]) -> Rank {
        let piped = command.arg("collective").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        Rank(piped.spawn().expect("it runs"))
    }

    /// Whether it ended well, and what it wrote on stdout and stderr.
    fn end(mut self) -> (bool, String, String) {
        let start = Instant::now();
        while self.0.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < LIMIT, "a rank hangs");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (mut out, mut err) = (String::new(), String::new());
        self.0.stdout.take().expect("piped").read_to_string(&mut out).expect("UTF-8");
        self.0.stderr.take().expect("piped").read_to_string(&mut err).expect("UTF-8");
        (self.0.wait().expect("ended").success(), out, err)
    }
}

/// Ports that nobody listens at, as a list for `--peers`.
fn peers(ranks: usize) -> String {
    let ports: Vec<TcpListener> = (0..ranks).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let port = |l: &TcpListener| format!("127.0.0.1:{}", l.local_addr().expect("bound").port());
    ports.iter().map(port).collect::<Vec<_>>().join(",")
}

/// The name of a network in memory of this test alone.
fn network(name: &str) -> String {
    format!("shm:ranks-{}-{name}", std::process::id())
}

/// A rank on a network in memory, with these arguments.
fn local(dev: &str, list: &str, rank: usize, args: &[&str]) -> Rank {
    let rank = rank.to_string();
    let all = [args, &["--dev", dev, "--peers", list, "--rank", &rank]].concat();
    Rank::start(Command::new(env!("CARGO_BIN_EXE_softnic")), &all)
}

/// The object of a rank, and the summary that it prints.
fn lines(out: &str) -> (Value, Value) {
    let mut lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "{out}");
    let mut last = lines.pop().expect("lines");
    (lines.remove(0), last["summary"].take())
}

#[test]
fn each_rank_is_a_process_and_says_what_it_saw() {
    for (transport, operation) in [("rc", "allreduce"), ("sr", "alltoall"), ("xp", "allreduce")] {
        let (dev, list) = (network(transport), peers(3));
        let args = [operation, "--transport", transport, "--size", "100KB", "--iters", "5", "--json"];
        let ranks: Vec<Rank> = (0..3).map(|rank| local(&dev, &list, rank, &args)).collect();
        for (rank, process) in ranks.into_iter().enumerate() {
            let (well, out, err) = process.end();
            assert!(well, "{transport}, rank {rank}: {err}");
            let (own, all) = lines(&out);
            assert_eq!(own["rank"].as_u64(), Some(rank as u64));
            assert_eq!((all["ranks"].as_u64(), all["iterations"].as_u64()), (Some(3), Some(5)));
            assert!(own["cct_ms"]["mean"].as_f64() > Some(0.0) && own["counters"]["received_bytes"].as_u64() > Some(0));
            assert_eq!(all["timeouts_ms"].is_null(), transport != "xp");
        }
    }
}

#[test]
fn a_rank_that_never_comes_is_named_with_where_it_should_be() {
    let (dev, list) = (network("absent"), peers(3));
    let args = ["allreduce", "--size", "4K", "--patience", "1s"];
    let ranks: Vec<Rank> = [0, 2].map(|rank| local(&dev, &list, rank, &args)).into();
    let absent = list.split(',').nth(1).expect("three");
    for process in ranks {
        let (well, out, err) = process.end();
        assert!(!well && out.is_empty(), "{out}");
        assert!(
            err.contains(&format!("rank 1 ({absent}) did not come within 1s")) && err.lines().count() == 1,
            "{err}"
        );
    }
}

#[test]
fn a_rank_that_comes_late_is_waited_for() {
    let (dev, list) = (network("late"), peers(2));
    let args = ["allreduce", "--size", "4K", "--iters", "2"];
    let first = local(&dev, &list, 1, &args);
    // Whenever that is: nothing here depends on it.
    std::thread::sleep(Duration::from_millis(700));
    let second = local(&dev, &list, 0, &args);
    for process in [first, second] {
        let (well, _, err) = process.end();
        assert!(well, "{err}");
    }
}

#[test]
fn ranks_that_disagree_on_size_type_or_number_say_so_in_a_line() {
    let usual = ["allreduce", "--size", "4K"];
    let others: [(&[&str], &str); 4] = [
        (&["allreduce", "--size", "8K"], "8192 bytes"),
        (&["allreduce", "--size", "4K", "--type", "f16"], "f16"),
        (&["allreduce", "--size", "4K", "--transport", "sr"], "over sr"),
        (&["allreduce", "--size", "4K", "--transport", "xp", "--margin", "0.25"], "margin 0.25"),
    ];
    for (i, (other, word)) in others.into_iter().enumerate() {
        let usual = [&usual[..], if word.contains("margin") { &["--transport", "xp"] } else { &[] }].concat();
        let (dev, list) = (network(&format!("differ{i}")), peers(2));
        for process in [local(&dev, &list, 0, &usual), local(&dev, &list, 1, other)].map(Rank::end) {
            let (well, out, err) = process;
            assert!(!well && out.is_empty() && err.lines().count() == 1, "{out}{err}");
            assert!(err.contains("rank 0") && err.contains("rank 1") && err.contains(word), "{err}");
        }
    }
    // A rank that thinks that there are three.
    let (dev, list) = (network("number"), peers(3));
    let two = list.rsplit_once(',').expect("three").0;
    let args = ["allreduce", "--size", "4K", "--patience", "3s"];
    let (a, b) = (local(&dev, two, 0, &args), local(&dev, &list, 1, &args));
    let err = a.end().2;
    assert!(err.contains("in a group of 3") && err.contains("in one of 2"), "{err}");
    assert!(!b.end().0);
}

#[test]
fn a_rank_that_dies_is_named_by_all_others() {
    let (dev, list) = (network("dies"), peers(3));
    // So many that it is killed long before the end.
    let args = ["allreduce", "--size", "64K", "--iters", "100000000", "--patience", "20s"];
    let mut ranks: Vec<Rank> = (0..3).map(|rank| local(&dev, &list, rank, &args)).collect();
    std::thread::sleep(Duration::from_secs(3));
    let mut victim = ranks.remove(1);
    victim.0.kill().expect("a child");
    for process in ranks {
        let (well, out, err) = process.end();
        assert!(!well && out.is_empty() && err.lines().count() == 1, "{out}{err}");
        assert!(err.contains("rank 1"), "{err}");
    }
}

#[test]
fn a_rank_without_its_number_or_list_is_told_what_is_missing() {
    let wrong: [(&[&str], &str); 4] = [
        (&["allreduce", "--dev", "shm"], "say which one with --rank"),
        (&["allreduce", "--dev", "shm", "--rank", "2", "--peers", "a,b"], "--rank 2: --peers has 2 ranks"),
        (&["allreduce", "--dev", "mem", "--rank", "0", "--peers", "a,b"], "there is no --rank"),
        (&["allreduce", "--dev", "shm", "--rank", "0", "--peers", "a,b:x"], "`b:x` is no address of a rank"),
    ];
    for (args, words) in wrong {
        let (well, _, err) = Rank::start(Command::new(env!("CARGO_BIN_EXE_softnic")), args).end();
        assert!(!well && err.contains(words) && err.lines().count() == 1, "{args:?}: {err}");
    }
}

/// Two namespaces with a veth pair between them.
fn spaces() -> Option<Namespaces> {
    let commands = [
        "link add name e netns @zero type veth peer name e netns @one",
        "-n @zero address add 10.78.0.1/24 dev e",
        "-n @one address add 10.78.0.2/24 dev e",
        "-n @zero link set e up",
        "-n @one link set e up",
    ];
    Namespaces::new(&["zero", "one"], &commands)
}

#[test]
fn two_ranks_find_each_other_by_address_over_af_xdp() {
    let Some(spaces) = spaces() else { return };
    for (transport, fault) in [("rc", ""), ("sr", "loss=1e-3"), ("xp", ""), ("xp", "loss=1e-3")] {
        let ranks = ["zero", "one"].map(|name| {
            let rank = if name == "zero" { "0" } else { "1" };
            let args = ["allreduce", "--dev", "afxdp:e", "--rank", rank, "--peers", "10.78.0.1,10.78.0.2"];
            let more = ["--size", "1M", "--iters", "10", "--transport", transport, "--fault", fault, "--json"];
            Rank::start(spaces.inside(name, env!("CARGO_BIN_EXE_softnic")), &[&args[..], &more].concat())
        });
        for (rank, process) in ranks.into_iter().enumerate() {
            let (well, out, err) = process.end();
            assert!(well, "{transport} {fault}, rank {rank}: {err}");
            let (own, all) = lines(&out);
            assert_eq!((own["rank"].as_u64(), all["iterations"].as_u64()), (Some(rank as u64), Some(10)));
            let counters = &own["counters"];
            let [came, missing] = ["received_bytes", "missing_bytes"].map(|name| counters[name].as_u64().expect(name));
            assert_eq!(came + missing, 10 << 20, "{own}");
            assert!(transport == "xp" || missing == 0, "{own}");
        }
    }
}
