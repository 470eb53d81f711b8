//! The page in a real browser: chromium without a screen. Where there is none, these tests say so.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::pixels::Picture;
use super::{Folder, corpus, succeed};

const CHROMIUM: &str = "chromium";
const SIZE: [usize; 2] = [1500, 1400];
/// A browser that hangs ends after this.
const LONGEST: Duration = Duration::from_secs(120);

/// Whether there is a browser.
fn is_there(test: &str) -> bool {
    let there = Command::new(CHROMIUM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = there.is_ok_and(|status| status.success());
    if !there {
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: there is no {CHROMIUM}");
    }
    there
}

/// Starts the browser on a page; what it prints.
fn browse(folder: &Folder, page: &str, arguments: &[&str]) -> String {
    let output = folder.file("browser.out");
    let mut child = Command::new(CHROMIUM)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
        .args(["--force-device-scale-factor=1", "--virtual-time-budget=20000"])
        .arg(format!("--window-size={},{}", SIZE[0], SIZE[1]))
        .arg(format!("--user-data-dir={}", folder.file("profile")))
        .args(arguments)
        .arg(format!("file://{page}"))
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&output).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > LONGEST {
            child.kill().unwrap();
            panic!("{CHROMIUM} did not end within {LONGEST:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::read_to_string(&output).unwrap()
}

/// What the page found out about itself.
fn selftest(folder: &Folder, page: &str) -> Value {
    let dom = browse(folder, &format!("{page}#selftest"), &["--dump-dom"]);
    let text = dom.split_once("<pre id=\"selftest\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (text, _) =
        text.unwrap_or_else(|| panic!("the page wrote no result: {}", &dom[dom.len().saturating_sub(2000)..]));
    let text = text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&");
    serde_json::from_str(&text).unwrap()
}

fn number(value: &Value, path: &str) -> f64 {
    let found = value.pointer(path).unwrap_or_else(|| panic!("no {path} in {value}"));
    found.as_f64().unwrap_or_else(|| panic!("{path} is {found}"))
}

/// A capture with losses, NAKs and retransmissions, and its page.
fn lossy(folder: &Folder) -> String {
    let (capture, page) = (folder.file("lossy.pcap"), folder.file("lossy.html"));
    let arguments = ["--op", "send", "--size", "64K", "--count", "12", "--fault", "loss=0.01"];
    succeed(&[&["sim", "--pcap", &capture], &arguments[..]].concat());
    succeed(&["report", &capture, "-o", &page]);
    page
}

#[test]
fn the_page_draws_zooms_searches_and_filters() {
    if !is_there("a report in a browser") {
        return;
    }
    let folder = Folder::new("draws");
    let page = lossy(&folder);
    let found = selftest(&folder, &page);
    let drawn = |state: &str, canvas: &str, kind: &str| number(&found, &format!("/{state}/drawn/{canvas}/{kind}"));
    for (canvas, kind) in [
        ("chart-psn", "sent"),
        ("chart-psn", "again"),
        ("chart-psn", "lost"),
        ("chart-psn", "nak"),
        ("chart-flight", "sent"),
        ("chart-throughput", "sent"),
        ("chart-throughput", "again"),
        ("chart-completions", "sent"),
        ("sequence", "sent"),
    ] {
        assert!(drawn("whole", canvas, kind) > 0.0, "{canvas} has nothing of {kind}: {}", found["whole"]);
    }
    let span = |range: &str| number(&found, &format!("{range}/1")) - number(&found, &format!("{range}/0"));
    assert!(span("/zoomed/range") < span("/whole/range") / 20.0 && span("/restored") == span("/whole/range"));
    assert_ne!(found["zoomed"]["drawn"]["chart-psn"], found["whole"]["drawn"]["chart-psn"]);
    assert!(found["tooltip"].as_str().unwrap().starts_with("packet 1: RC_SEND_FIRST\n"), "{}", found["tooltip"]);
    assert!(number(&found, "/again") > 0.0 && found["selected"].as_str().unwrap().contains("sent again: NAK"));
    assert_eq!((&found["byPsn"], &found["onlyMatches"][0]), (&true.into(), &found["onlyMatches"][1]));
    assert_eq!((number(&found, "/filteredOut"), number(&found, "/filteredIn")), (0.0, 1.0));
    assert!(number(&found, "/ofPath/0") < number(&found, "/ofPath/1") && found["ofPath"][2] == true);
    for kind in ["sent", "again", "lost", "nak"] {
        assert!(number(&found, &format!("/overview/{kind}")) > 0.0, "{}", found["overview"]);
    }
}

#[test]
fn the_number_of_a_packet_in_a_verdict_leads_to_the_packet() {
    if !is_there("verdicts in a browser") {
        return;
    }
    let folder = Folder::new("jumps");
    let page = folder.file("page.html");
    succeed(&["report", &corpus("interop_bad_rkey_write_softnic.pcap"), "-o", &page]);
    let found = selftest(&folder, &page);
    assert_eq!(found["verdicts"], serde_json::json!(["access-error"]));
    assert_eq!((&found["jumped"][0], &found["jumped"][1]), (&"1".into(), &1.into()));
}

/// Colours of the style, light and dark.
const LIGHT: [&str; 5] = ["ffffff", "0072b2", "e69f00", "d62728", "a12c8e"];
const DARK: [&str; 5] = ["14171c", "4aa8e8", "f2b134", "ff5c5c", "e07bd0"];

#[test]
fn a_screenshot_has_the_colours_of_what_happened_where_they_belong() {
    if !is_there("a screenshot of a report") {
        return;
    }
    let folder = Folder::new("screenshot");
    let page = lossy(&folder);
    let boxes = selftest(&folder, &page)["boxes"].clone();
    let of = |id: &str| -> [usize; 4] { std::array::from_fn(|i| boxes[id][i].as_u64().unwrap() as usize) };
    for (scheme, [background, sent, again, lost, nak]) in [("1", LIGHT), ("0", DARK)] {
        let file = folder.file("page.png");
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        browse(&folder, &page, &[&scheme, &format!("--screenshot={file}")]);
        let picture = Picture::read(&std::fs::read(&file).unwrap());
        assert_eq!((picture.width, SIZE[0] * SIZE[1]), (SIZE[0], picture.width * picture.height));
        let whole = [0, 0, picture.width, picture.height];
        assert!(picture.count(whole, background) * 3 > picture.width * picture.height, "the background, {scheme}");
        let at_least = |id: &str, colour: &str, least: usize| {
            let found = picture.count(of(id), colour);
            assert!(found >= least, "{found} pixels of {colour} in {id}, {scheme}");
        };
        at_least("chart-psn", sent, 200);
        at_least("chart-psn", again, 500);
        at_least("chart-psn", lost, 50);
        at_least("chart-psn", nak, 50);
        at_least("chart-throughput", again, 1000);
        at_least("sequence", sent, 1000);
        assert_eq!(picture.count(of("sequence"), again), 0, "the first packets are sent for the first time");
        assert_eq!(picture.count(of("chart-completions"), lost), 0);
    }
}
