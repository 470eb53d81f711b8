//! `fi_info` and `fi_pingpong` of libfabric: how they are called, and whether what they moved went over softnic.
//!
//! libfabric has many providers, sockets among them, so each end is told the device (`-d`): one that does not find it ends with an error. And
//! where the data is not checked (`-c`) each end prints what it chose (`-v`), which must be verbs; with both it prints a line for each byte.

use super::tools::{Case, PORT, Prints, case};

const PROGRAM: &str = "fi_pingpong";
const LOSSY: &str = "loss=1e-3,reorder=1e-3:3";

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut all = vec![case("fi_info", "-p verbs -v", Prints::Fabrics, true)];
    for (options, short) in [
        ("-p verbs -e msg -c -I 20", true),
        ("-p verbs -e dgram -c -I 20", true),
        ("-p verbs -e rdm -c -I 20", true),
        ("-p verbs -e msg -I 20", true),
        ("-p verbs -e dgram -I 20", false),
        ("-p verbs -e rdm -I 20", true),
        ("-p verbs;ofi_rxd -e rdm -I 20", false),
        ("-p verbs;ofi_rxd -e rdm -c -I 20", false),
        ("-p verbs -e msg -S 1 -I 900", false),
        ("-p verbs -e dgram -c -S 1000 -I 500", false),
        ("-p verbs -e rdm -c -m tagged -I 20", false),
        ("-p verbs -e rdm -c -m tagged -S 100000 -I 100", false),
    ] {
        all.push(case(PROGRAM, options, Prints::Fabric, short));
    }
    // One is made reliable by our queue pairs, one by libfabric.
    for options in ["-p verbs -e msg -c -S 65536 -I 200", "-p verbs;ofi_rxd -e rdm -c -S 65536 -I 100"] {
        all.push(Case { fault: Some(LOSSY), ..case(PROGRAM, options, Prints::Fabric, false) });
    }
    all
}

/// The words of `fi_pingpong`; its two ends find each other by TCP.
pub(super) fn words(options: &str, server: Option<&str>) -> Vec<String> {
    let port = PORT.to_string();
    let side = if server.is_some() { "-P" } else { "-B" };
    let talk = if is_checked(options) { None } else { Some("-v") };
    let begin = [PROGRAM, side, &port, "-d", choice(options).1].into_iter().chain(talk);
    let all = begin.chain(options.split_whitespace()).chain(server);
    all.map(str::to_owned).collect()
}

/// What follows an option.
fn value<'a>(options: &'a str, name: &str) -> &'a str {
    options.split_whitespace().skip_while(|&word| word != name).nth(1).unwrap_or_default()
}

/// Whether the program compares what it receives.
fn is_checked(options: &str) -> bool {
    options.split_whitespace().any(|word| word == "-c")
}

/// What libfabric must choose: provider and domain.
fn choice(options: &str) -> (&str, &'static str) {
    match (value(options, "-p"), value(options, "-e")) {
        ("verbs", "rdm") => ("verbs;ofi_rxm", "softnic0"),
        (provider, "msg") => (provider, "softnic0"),
        (provider, _) => (provider, "softnic0-dgram"),
    }
}

/// Whether an end of `fi_pingpong` moved all that it was told to, over softnic.
pub(super) fn judge(options: &str, printed: &str, end: &str) -> Result<(), String> {
    let (provider, domain) = choice(options);
    for (what, name) in [("prov_name", provider), ("name", domain)] {
        let found = values(printed, what);
        if !is_checked(options) && !found.contains(&name) {
            return Err(format!("the {end} names {found:?} as its {what}, not {name}"));
        }
    }
    let sizes: Vec<String> = match (value(options, "-S"), value(options, "-e")) {
        ("", "dgram") => ["64", "256", "1k", "4k"].map(String::from).to_vec(),
        ("", _) => ["64", "256", "1k", "4k", "64k", "1m"].map(String::from).to_vec(),
        (size, _) => vec![shortened(size)],
    };
    let count = value(options, "-I");
    // Size, sent, acknowledged, their sum, and how long it took.
    let is_row = |row: &Vec<&str>| row.len() == 8 && row[2].starts_with('=') && row[4].ends_with('s');
    let rows: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).filter(is_row).collect();
    let whole = |row: &&Vec<&str>| row[1] == count && row[2].strip_prefix('=') == Some(count);
    let moved: Vec<&str> = rows.iter().filter(whole).map(|row| row[0]).collect();
    match moved == sizes {
        true => Ok(()),
        false => Err(format!("the {end} moved messages of {moved:?} {count} times each way, not of {sizes:?}")),
    }
}

/// A size as the table has it.
fn shortened(size: &str) -> String {
    match size.parse().unwrap_or(0) {
        size @ 0..1024 => size.to_string(),
        size => format!("{}k", size / 1024),
    }
}

/// What is printed behind a name and a colon.
fn values<'a>(printed: &'a str, name: &str) -> Vec<&'a str> {
    printed.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).map(str::trim).collect()
}

/// What `fi_info -v` must say where only softnic is: connections, datagrams, and what libfabric makes of both.
pub(super) fn fabrics(printed: &str) -> Result<(), String> {
    let expected = [
        ("prov_name", vec!["verbs", "verbs;ofi_rxm", "verbs;ofi_rxd"]),
        ("type", vec!["FI_EP_MSG", "FI_EP_DGRAM", "FI_EP_RDM"]),
        ("name", vec!["softnic0", "softnic0-dgram"]),
    ];
    for (what, names) in expected {
        let found = values(printed, what);
        if let Some(missing) = names.iter().find(|name| !found.contains(name)) {
            return Err(format!("of {what} it has {found:?}, without {missing}"));
        }
    }
    let others: Vec<&str> = values(printed, "prov_name").into_iter().filter(|p| !p.starts_with("verbs")).collect();
    if others.is_empty() { Ok(()) } else { Err(format!("it names {others:?}, too")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &str = "-p verbs -e msg -S 65536 -I 20";
    const GOOD: &str = "fi_info:
    fi_domain_attr:
        name: softnic0
    fi_fabric_attr:
        prov_name: verbs
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64k     20      =20      2.5m        0.06s     20.34    3221.70       0.00
";

    #[test]
    fn another_provider_or_less_data_is_a_failure() {
        assert_eq!(judge(OPTIONS, GOOD, "client"), Ok(()));
        for (from, to) in [
            ("prov_name: verbs", "prov_name: sockets"),
            ("prov_name: verbs", "prov_name: tcp;ofi_rxm"),
            ("name: softnic0", "name: v0"),
            ("64k ", "4k "),
            ("=20", "=19"),
            (" 20 ", " 19 "),
            ("64k     20      =20      2.5m        0.06s     20.34    3221.70       0.00\n", ""),
        ] {
            assert!(judge(OPTIONS, &GOOD.replace(from, to), "client").is_err(), "{to} in the place of {from}");
        }
        assert!(judge("-p verbs -e msg -I 20", GOOD, "server").is_err(), "all sizes were asked for");
    }

    #[test]
    fn where_the_data_is_checked_the_device_is_asked_for() {
        let checked = "-p verbs -e dgram -c -S 100000 -I 20";
        let client = words(checked, Some("10.0.0.1")).join(" ");
        assert_eq!(client, format!("fi_pingpong -P {PORT} -d softnic0-dgram {checked} 10.0.0.1"));
        assert!(words(OPTIONS, None).contains(&"-v".to_owned()));
        assert_eq!(judge(checked, "97k 20 =20 3.8m 0.06s 20.34 3221.70 0.00", "client"), Ok(()));
        assert!(judge(checked, "", "client").is_err());
    }

    #[test]
    fn every_kind_of_endpoint_must_be_there() {
        let entry = |provider, kind, domain| format!("prov_name: {provider}\n type: {kind}\n name: {domain}\n");
        let all = [
            entry("verbs", "FI_EP_MSG", "softnic0"),
            entry("verbs;ofi_rxm", "FI_EP_RDM", "softnic0"),
            entry("verbs", "FI_EP_DGRAM", "softnic0-dgram"),
            entry("verbs;ofi_rxd", "FI_EP_RDM", "softnic0-dgram"),
        ];
        assert_eq!(fabrics(&all.concat()), Ok(()));
        for left_out in 1..all.len() {
            let rest: String =
                all.iter().enumerate().filter(|(n, _)| *n != left_out).map(|(_, e)| e.as_str()).collect();
            assert!(fabrics(&rest).is_err(), "without {}", all[left_out]);
        }
        assert!(fabrics(&(all.concat() + &entry("sockets", "FI_EP_MSG", "v0"))).is_err());
    }
}
