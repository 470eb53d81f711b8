//! What the documents claim, held against the code and the workspace.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use softnic_wire::Opcode;
use softnic_wire::opcode::{HeaderSet, Service};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn header(name: &str) -> HeaderSet {
    match name {
        "RETH" => HeaderSet::RETH,
        "AtomicETH" => HeaderSet::ATOMIC,
        "AETH" => HeaderSet::AETH,
        "AtomicAckETH" => HeaderSet::ATOMIC_ACK,
        "ImmDt" => HeaderSet::IMM,
        "IETH" => HeaderSet::IETH,
        "FETH" => HeaderSet::FETH,
        "SrETH" => HeaderSet::SR,
        "XpETH" => HeaderSet::XP,
        "TimeLeft" => HeaderSet::XP_TIME,
        "XpFeedback" => HeaderSet::XP_FEEDBACK,
        "XpCredit" => HeaderSet::XP_CREDIT,
        other => panic!("no header is called {other:?}"),
    }
}

/// Every row of the tables of opcodes says what the code does, and no opcode is missing.
#[test]
fn the_tables_of_opcodes_are_the_one_in_the_code() {
    let mut documented = BTreeSet::from([Opcode::CNP.0]);
    for line in read("docs/wire-formats.md").lines() {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [low, name, services, headers, _payload] = cells[..] else { continue };
        let Some(low) = low.strip_prefix("0x").and_then(|h| u8::from_str_radix(h, 16).ok()) else { continue };
        let set = headers.split(", ").filter(|h| !h.is_empty()).map(header).fold(HeaderSet::NONE, HeaderSet::with);
        for service in services.split_whitespace() {
            let base = match service {
                "RC" => 0x00,
                "UC" => 0x20,
                "UD" => 0x60,
                "XRC" => 0xa0,
                "SR" => 0xc0,
                "XP" => 0xe0,
                other => panic!("no service is called {other:?}"),
            };
            let opcode = Opcode(base | low);
            assert_eq!(opcode.to_string(), format!("{service}_{name}"));
            let in_front = match opcode.service() {
                Service::Ud => HeaderSet::DETH,
                Service::Xrc if opcode.is_request() => HeaderSet::XRCETH,
                _ => HeaderSet::NONE,
            };
            assert_eq!(opcode.headers(), set.with(in_front), "{opcode}");
            assert!(documented.insert(opcode.0), "{opcode} stands there twice");
        }
    }
    let known: BTreeSet<u8> = (0..=255).filter(|&o| Opcode(o).is_known()).collect();
    assert_eq!(documented, known);
}

/// Every dependency of the workspace is explained.
#[test]
fn every_dependency_has_its_reason() {
    let manifest = read("Cargo.toml");
    let reasons = read("docs/dependencies.md");
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let names = section.lines().take_while(|l| !l.starts_with('[')).filter_map(|l| l.split_once(" = "));
    let missing: Vec<_> = names
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with("softnic") && !reasons.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "docs/dependencies.md does not say why there is {missing:?}");
}

/// The list of files that the example of docs/adding-a-transport.md touched names no file that is gone.
#[test]
fn every_file_that_the_example_of_a_transport_is_said_to_touch_is_there() {
    let document = read("docs/adding-a-transport.md");
    let example = document.split("\n## ").find(|section| section.starts_with("An example")).unwrap();
    let rows = example.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let listed: BTreeSet<&str> = rows.flat_map(|cell| cell.split('`').filter(|name| name.contains('/'))).collect();
    assert!(listed.len() > 10, "{listed:?}");
    for file in &listed {
        read(file);
    }
}

/// Whoever reads a document in a terminal, or beside its code, reads it without wrapping. Tables and outputs are as wide as they are.
#[test]
fn lines_of_prose_have_at_most_120_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let documents =
        [root.clone(), root.join("docs")].into_iter().flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let documents =
        documents.map(|entry| entry.expect("an entry").path()).filter(|p| p.extension().is_some_and(|e| e == "md"));
    let mut long = Vec::new();
    for path in documents {
        let text = fs::read_to_string(&path).expect("a document");
        let (mut fenced, mut made) = (false, false);
        for (n, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            // What a command writes there is as wide as it is, too.
            made |= line.starts_with("<!-- made by");
            made &= !line.starts_with("<!-- end of what");
            let prose = !fenced && !made && !line.trim_start().starts_with('|') && !line.starts_with("    ");
            if prose && line.chars().count() > 120 {
                long.push(format!("{}:{}", path.file_name().unwrap_or_default().display(), n + 1));
            }
        }
    }
    assert!(long.is_empty(), "{long:?}");
}
