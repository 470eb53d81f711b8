//! The experiments of LoWAR.

use crate::support::*;

#[test]
fn goodput_of_rc_falls_with_loss_while_lowar_keeps_it_and_every_file_can_be_read() {
    let folder = Folder::new("goodput");
    let text = quick(&folder, "lowar-goodput", &["--transports", "rc,lowar:32,1"]);
    let rows = csv(&folder.read("lowar-goodput-quick.csv"));
    let of = |transport: &str| {
        ["0", "0.00005", "0.0001"]
            .map(|l| figure(&rows, &[("transport", transport), ("rtt_ms", "40"), ("loss", l)], "goodput_gbps"))
    };
    let (rc, lowar) = (of("rc"), of("lowar:32,1"));
    assert!(rc[0] > 2.0 * rc[1] && rc[1] > rc[2], "{rc:?}");
    assert!(lowar[2] > 0.95 * lowar[0] && lowar[0] < rc[0], "{lowar:?} {rc:?}");
    assert_well_formed(&folder.read("lowar-goodput-quick.svg"));
    // What the paper states stands beside ours, and nothing where it states nothing.
    let paper = csv(&folder.read("lowar-goodput-quick-paper.csv"));
    let clean = paper.iter().find(|row| row["figure"].contains("no loss")).expect("stated");
    assert!((number(clean, "ratio") - number(clean, "ours") / 9.21).abs() < 1e-6, "{clean:?}");
    assert!(text.contains("not stated") && text.contains("Beside the paper"), "{text}");
    assert_eq!(text.matches("goals not judged: quick").count(), 1, "{text}");
    assert!(
        !text.contains("goal reached") && !text.contains("goal MISSED") && !text.contains("not measured"),
        "{text}"
    );
}

#[test]
fn flows_of_1_mb_take_longer_with_loss_but_not_those_of_lowar() {
    let folder = Folder::new("fct");
    quick(&folder, "lowar-fct", &["--transports", "rc,lowar:32,1"]);
    let rows = csv(&folder.read("lowar-fct-quick.csv"));
    let of = |transport: &str, column: &str| {
        ["0", "0.0001", "0.0005"].map(|loss| figure(&rows, &[("transport", transport), ("loss", loss)], column))
    };
    let means = of("rc", "fct_mean_ms");
    // A round trip of 40 ms and 0.9 ms on the line.
    assert!(means[0] > 40.8 && means[0] < 41.0 && means.is_sorted() && means[2] > 55.0, "{means:?}");
    let (p99, max) = (of("rc", "fct_p99_ms"), of("rc", "fct_max_ms"));
    assert!(p99[2] > 80.0 && p99[2] <= max[2], "{p99:?} {max:?}");
    let lowar = of("lowar:32,1", "fct_p99_ms");
    assert!(lowar[2] < 1.02 * lowar[0], "{lowar:?}");
    assert_well_formed(&folder.read("lowar-fct-quick.svg"));
}

#[test]
fn bursts_of_up_to_8_packets_do_not_lower_the_goodput_of_64_8() {
    let folder = Folder::new("burst");
    quick(&folder, "lowar-burst", &["--transports", "rc,lowar:64,8"]);
    let rows = csv(&folder.read("lowar-burst-quick.csv"));
    let rc = |burst| figure(&rows, &[("transport", "rc"), ("p_high", "0.7"), ("burst", burst)], "goodput_gbps");
    assert!(rc("0") > 2.0 * rc("8"), "{} {}", rc("0"), rc("8"));
    let of = |burst| figure(&rows, &[("transport", "lowar:64,8"), ("p_high", "0.7"), ("burst", burst)], "goodput_gbps");
    assert!(of("8") > 0.98 * of("0"), "{} {}", of("0"), of("8"));
    assert_well_formed(&folder.read("lowar-burst-quick.svg"));
}

#[test]
fn what_lowar_adds_to_latency_is_its_repair_packets_and_it_sends_nothing_again() {
    let folder = Folder::new("overhead");
    quick(&folder, "lowar-overhead", &[]);
    let rows = csv(&folder.read("lowar-overhead-quick.csv"));
    let of = |transport, lost, column| figure(&rows, &[("transport", transport), ("lost", lost)], column);
    for (transport, repairs) in [("lowar:8,1", 128.0), ("lowar:32,1", 32.0), ("lowar:128,16", 128.0)] {
        // 0.885 µs each, and those of the last block are behind the data.
        let (added, all) = (of(transport, "nothing", "more_than_rc_us"), repairs * 0.885);
        assert!(added < 1.05 * all && added > 0.85 * all, "{transport}: {added} of {all}");
        for lost in ["one of a middle block", "one of the last block", "one of each of the last two blocks"] {
            assert_eq!(of(transport, lost, "sent_again"), 0.0, "{transport}, {lost}");
            assert!(of(transport, lost, "recovering_us") < of("rc", lost, "recovering_us"), "{transport}, {lost}");
        }
    }
    assert_eq!(of("lowar:128,16", "16 in a row of the last block", "sent_again"), 0.0, "one in each of 16 lanes");
    assert!(of("rc", "16 in a row of the last block", "sent_again") >= 16.0);
}

#[test]
fn small_messages_keep_their_goodput_with_lowar_and_the_same_seed_gives_the_same_bytes() {
    let files = ["lowar-small-quick.csv", "lowar-small-quick.svg", "lowar-small-quick.json"];
    let run = |name: &str, more: &[&str]| {
        let folder = Folder::new(name);
        let text = quick(&folder, "lowar-small", &[&["--transports", "rc,lowar:32,1", "--seeds", "2"], more].concat());
        (files.map(|file| folder.read(file)), text)
    };
    let one = run("small", &["--threads", "1"]);
    assert_eq!(one, run("again", &["--threads", "3"]), "whatever the number of threads");
    assert_ne!(one.0[0], run("other", &["--seed", "9"]).0[0], "another seed");
    let rows = csv(&one.0[0]);
    let kept = |t| figure(&rows, &[("transport", t), ("bytes", "16384"), ("loss", "0.001")], "kept_percent");
    assert!(kept("rc") < 70.0 && kept("lowar:32,1") > 95.0, "{} {}", kept("rc"), kept("lowar:32,1"));
    assert_well_formed(&one.0[1]);
}
