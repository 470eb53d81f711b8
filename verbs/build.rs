//! How the library is linked: under the name of libibverbs, with the version nodes of both libraries that it stands for.
//!
//! `src/exports.rs` gives each symbol its version by `.symver`. That needs a version script that defines the nodes. rustc passes a script
//! of its own, without nodes, that makes everything else local; rust-lld merges the two, GNU ld refuses.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

/// All nodes of rdma-core 44 to 65, and ours. The number of the private one is that of a release that changed what drivers use.
fn nodes() -> Vec<String> {
    let public = ["1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14"];
    let newer = ["1.15", "1.16", "1.17", "1.18"];
    let mut nodes: Vec<String> = public.iter().chain(&newer).map(|v| format!("IBVERBS_{v}")).collect();
    nodes.extend([34].into_iter().chain(57..=65).map(|n| format!("IBVERBS_PRIVATE_{n}")));
    nodes.extend((0..=5).map(|n| format!("RDMACM_1.{n}")));
    nodes.push("SOFTNICDV_1.0".into());
    nodes
}

fn main() {
    let Some(out) = env::var_os("OUT_DIR") else { panic!("cargo sets OUT_DIR") };
    let path = PathBuf::from(out).join("versions.map");
    let mut script = String::new();
    for node in nodes() {
        // Writing to a string does not fail.
        let _ = writeln!(script, "{node} {{ }};");
    }
    fs::write(&path, script).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", path.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // Threads of a NIC run its code: it must not go before they do.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The memif driver's own function waits for whoever polls: `memif_free_regions` in runtime/src/dpdk/shim.c.
    #[cfg(feature = "dpdk")]
    println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap=memif_free_regions");
    println!("cargo:rerun-if-changed=build.rs");
}
