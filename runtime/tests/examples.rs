//! The examples do what they say, over the wire in memory.
#![allow(clippy::duplicate_mod)] // each example has what they share for itself
#![allow(dead_code)] // `main` is for the example

#[path = "../examples/file_copy.rs"]
mod file_copy;
#[path = "../examples/key_value.rs"]
mod key_value;
#[path = "../examples/ping_pong.rs"]
mod ping_pong;

#[test]
fn ping_pong_counts_its_round_trips() {
    let said = ping_pong::run(&[]).unwrap();
    assert!(said.starts_with("10000 round trips"), "{said}");
}

#[test]
fn key_value_finds_every_key() {
    let said = key_value::run(&[]).unwrap();
    assert!(said.starts_with("20000 keys read"), "{said}");
}

#[test]
fn file_copy_copies_files_of_every_kind_of_length() {
    let folder = std::env::temp_dir().join(format!("softnic-file-copy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.join(name));
    for len in [0, 1, 65_536, 5_000_001] {
        let bytes: Vec<u8> = (0..len).map(|i: usize| ((i * 131) >> 4) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        let names = [&from, &to].map(|name| name.to_str().unwrap().to_string());
        let said = file_copy::run(&names).unwrap();
        assert!(said.starts_with(&format!("{len} bytes")), "{said}");
        assert!(std::fs::read(&to).unwrap() == bytes, "{len} bytes");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(file_copy::run(&[]).unwrap_err().to_string().contains("which file?"));
}
