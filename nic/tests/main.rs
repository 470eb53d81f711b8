//! Tests of one NIC, packet by packet. One program for all files: built and linked once, not once a file.

mod acknowledge;
mod arbitrary;
mod arbitrary_kinds;
mod auth;
mod common;
mod congestion;
mod credit;
mod data;
mod drain;
mod errors;
mod events;
mod found_by_swarm;
mod halting;
mod hostile;
mod local_operations;
mod loopback;
mod loss;
mod lowar;
mod lowar_hostile;
mod mads;
mod mixed;
mod moving;
mod multicast;
mod objects;
mod ping_pong;
mod ports;
mod reads_again;
mod reads_in_pieces;
mod receiver_not_ready;
mod sdr;
mod selective;
mod sharing;
mod sinks;
mod srq;
mod states;
mod transfer;
mod turns;
mod uc;
mod ud;
mod victims;
mod windows;
mod xp;

/// A file that is not named above would be left out, and nobody would notice.
#[test]
fn every_file_of_this_folder_is_part_of_it() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        let line = format!("\nmod {module};\n");
        assert!(module == "main" || include_str!("main.rs").contains(&line), "tests/main.rs does not name {name}");
    }
}
