//! What the layers of `cargo xtask test` build stands on the same crates with the same features: else cargo builds most of the workspace once more
//! for some of them, which takes minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The features of each package that a build of `selection` needs; a package may be there twice, for itself and for what runs while building.
fn features(selection: &[&str], edges: &str) -> BTreeMap<String, BTreeSet<String>> {
    let format = ["--edges", edges, "--prefix", "none", "--format", "{p} [{f}]", "--no-dedupe", "--locked"];
    let out = Command::new(env!("CARGO")).arg("tree").args(selection).args(format).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut all = BTreeMap::<_, BTreeSet<_>>::new();
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        if let Some((package, features)) = line.trim_end_matches(" (*)").rsplit_once(" [") {
            all.entry(package.into()).or_default().insert(features.into());
        }
    }
    all
}

#[test]
fn packages_have_the_same_features_in_each_build_of_the_layers() {
    let tests = features(&["--workspace", "--exclude", "softnic-benches"], "normal,build,dev");
    assert!(tests.len() > 100, "{}", tests.len());
    let builds: [&[&str]; 4] = [
        &["-p", "xtask"],
        &["-p", "softnic"],
        &["-p", "softnic", "-p", "softnic-verbs"],
        &["-p", "softnic-cli", "-p", "softnic-verbs"],
    ];
    for selection in builds {
        for (package, features) in features(selection, "normal,build") {
            assert_eq!(
                Some(&features),
                tests.get(&package),
                "{package}, built by `cargo build {}`",
                selection.join(" ")
            );
        }
    }
}
